// Strings of a JSON schema whose characters and whose number are limited ("pattern" or "format" with
// "minLength" or "maxLength"). Pure.
#pragma once

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_limits.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

// The texts of `characters` with as many characters as the limits allow. characters: what stands
// between the quotes of a JSON string, without \u escapes; it refers to no rule. InvalidArgument: it
// is too large, or has no such text.
absl::StatusOr<Part> WithLength(const Part& characters, const CountLimits& limits,
                                JsonRules* rules);

}  // namespace coppice::grammar
