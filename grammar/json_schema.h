// JSON schemas as grammars of JSON texts that are valid for them. Every text of the grammar is
// valid, unless "uniqueItems" is ignored (json_arrays.h). The grammar does not have every valid
// text: members have the order of "properties", white space and numbers are bounded (json_rules.h),
// and where "type" is absent the keywords tell which types are meant. A keyword that limits the
// values and is not served is an error. Others that are not known are annotations (JSON Schema
// 2020-12, core 6.5). Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

// InvalidArgument names the place in the schema (as a JSON pointer) and what cannot be served
// there. *annotations, if not nullptr, gets the places of keywords that are not known, and of those
// that are ignored.
absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text,
                                       std::vector<std::string>* annotations);
absl::StatusOr<Grammar> ReadJsonSchema(absl::string_view text);
// The same inside of a larger grammar: adds the rules of the schema, and returns what stands for its
// texts. pointer: the place of the schema, for errors.
absl::StatusOr<Part> AddJsonSchema(const OrderedJson& schema, const std::string& pointer,
                                   JsonRules* rules, std::vector<std::string>* annotations);

}  // namespace coppice::grammar
