// Objects of a JSON schema: "properties", "required", "additionalProperties", "patternProperties",
// "propertyNames", "minProperties", "maxProperties". Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_limits.h"
#include "grammar/json_rules.h"
#include "grammar/json_strings.h"
#include "grammar/schema_parts.h"

namespace coppice::grammar {

class JsonObjects {
 public:
  // All must outlive this.
  JsonObjects(JsonRules* rules, JsonStrings* strings, SchemaParts* schemas)
      : rules_(*rules), strings_(*strings), schemas_(*schemas) {}

  // The objects that a schema allows.
  absl::StatusOr<Part> OfSchema(const DocumentPlace& schema);

 private:
  struct Pattern {
    std::string text;
    DocumentPlace schema;  // of the values whose key matches
    Automaton keys;
  };
  // What is said of the keys and the values of an object.
  struct Keys {
    std::vector<Pattern> patterns;
    std::vector<std::string> names;    // expressions that each key must match
    std::optional<Automaton> allowed;  // the keys that match all of `names`
    std::optional<Part> listed;        // the keys, where "propertyNames" is no such expression
    std::string pointer;
  };
  struct Member {
    std::string key;
    std::vector<DocumentPlace> schemas;
    bool required = false;
  };

  absl::StatusOr<std::vector<Member>> ReadMembers(const DocumentPlace& schema);
  absl::StatusOr<Keys> ReadKeys(const DocumentPlace& schema);
  absl::Status ReadNames(DocumentPlace place, Keys* keys);
  // The further members of an object: keys by which patterns match them.
  absl::Status AddPatterned(const std::vector<Member>& members,
                            const std::optional<DocumentPlace>& other, Keys* keys,
                            std::vector<JsonRules::Other>* others);
  absl::StatusOr<bool> Overlap(const std::string& pointer, Automaton* one, Automaton* other);
  absl::StatusOr<Automaton> KeysWith(const std::string& pointer, const std::string& expression);

  JsonRules& rules_;
  JsonStrings& strings_;
  SchemaParts& schemas_;
  // Classes of keys that may be looked at, and the size of their expressions.
  int classes_left_ = 2000;
  int64_t expressions_left_ = 1 << 19;
  int pairs_left_ = 100'000;  // pairs of states of patterns
};

}  // namespace coppice::grammar
