// Strings of a JSON schema: "pattern", "format", "minLength", "maxLength". Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

class JsonStrings {
 public:
  // annotations: nullptr, or gets the places of formats that are not known. Both must outlive this.
  JsonStrings(JsonRules* rules, std::vector<std::string>* annotations)
      : rules_(*rules), annotations_(annotations) {}

  // The strings that a schema allows. Errors are InvalidArgument and name the place.
  absl::StatusOr<Part> OfSchema(const DocumentPlace& schema);
  // The strings with a match of the pattern. pointer: its place, for errors.
  absl::StatusOr<Part> OfPattern(const std::string& pointer, const std::string& pattern);

 private:
  absl::Status Count(const std::string& pointer);

  JsonRules& rules_;
  std::vector<std::string>* const annotations_;
  int patterns_ = 0;
};

}  // namespace coppice::grammar
