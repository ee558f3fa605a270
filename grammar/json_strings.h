// Strings of a JSON schema: "pattern", "format", "minLength", "maxLength". Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_limits.h"
#include "grammar/json_rules.h"
#include "grammar/regex_conditions.h"

namespace coppice::grammar {

// An expression, which may match anywhere, of the texts that match each of `must` and none of
// `must_not`.
std::string ExpressionOfAll(const std::vector<std::string>& must,
                            const std::vector<std::string>& must_not);
// Whether no text has an expression.
bool IsNoText(const absl::Status& status);

class JsonStrings {
 public:
  // annotations: nullptr, or gets the places of formats that are not known. Both must outlive this.
  JsonStrings(JsonRules* rules, std::vector<std::string>* annotations)
      : rules_(*rules), annotations_(annotations) {}

  // The strings that a schema allows. Errors are InvalidArgument and name the place.
  absl::StatusOr<Part> OfSchema(const DocumentPlace& schema);
  // The characters of the strings in which the expression matches, without the quotes. pointer: its
  // place, for errors.
  absl::StatusOr<Part> CharactersOf(const std::string& pointer, const std::string& expression);
  // The same as a grammar of its own. The error of the expression does not name the place.
  absl::StatusOr<Grammar> ReadPattern(const std::string& pointer, const std::string& expression);
  // Expressions that together say what the schema says of strings.
  absl::StatusOr<std::vector<std::string>> ExpressionsOf(const DocumentPlace& schema);

 private:
  // The texts of `characters` with as many characters as the limits allow. characters: what stands
  // between the quotes of a JSON string, without \u escapes. InvalidArgument: it has no such text,
  // or nothing is left for it.
  absl::StatusOr<Part> WithLength(const Grammar& characters, const CountLimits& limits);
  absl::Status Count(const std::string& pointer);

  JsonRules& rules_;
  std::vector<std::string>* const annotations_;
  int patterns_ = 0;
  absl::flat_hash_map<std::string, Part> known_;  // by expression
  // What is left for the patterns and formats of the schema that have a length, so that reading it
  // takes a second or two at most.
  struct {
    int64_t expressions = 1 << 19;
    int64_t rules = 40'000;
    int64_t work = 8'000'000;                 // places of automata
    int64_t conditions = kMostConditionWork;  // of patterns
  } left_;
};

}  // namespace coppice::grammar
