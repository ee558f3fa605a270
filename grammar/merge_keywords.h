// The keywords of a JSON schema that has what two schemas demand. Used by json_merge. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "grammar/json_document.h"

namespace coppice::grammar {

// No value fulfils the schemas together. Only json_merge and who asks it see this.
absl::Status NoValue(const std::string& pointer);
bool IsNoValue(const absl::Status& status);

// *merged demands what `more` demands, too. Neither has "$ref", "allOf", "anyOf" or "oneOf".
// InvalidArgument names a keyword of both that cannot be merged. pointer: the place of `more`.
absl::Status MergeKeywords(const std::string& pointer, const OrderedJson& more,
                           OrderedJson* merged);

}  // namespace coppice::grammar
