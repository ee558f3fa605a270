// The keyword arguments of a call in Python's notation, a=1, b="x", bound by the JSON schema of an
// object with these members. Called by the reader of structural tags.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

// The arguments have the order of "properties"; those that are not required may be left out. Strings
// are written as in JSON. Keys that are no names of Python are left out, or, if they are required, an
// error. rules: of the Python notation.
absl::StatusOr<Part> AddPythonArguments(const DocumentPlace& schema, JsonRules* rules,
                                        std::vector<std::string>* annotations);

}  // namespace coppice::grammar
