// Arrays of a JSON schema: "items", "prefixItems", "minItems", "maxItems", "uniqueItems". Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_limits.h"
#include "grammar/json_rules.h"
#include "grammar/schema_parts.h"

namespace coppice::grammar {

class JsonArrays {
 public:
  // Both must outlive this.
  JsonArrays(JsonRules* rules, SchemaParts* schemas) : rules_(*rules), schemas_(*schemas) {}

  // The arrays that a schema allows. "uniqueItems" is kept where the items are up to kMostUnique
  // values that the schema lists, or one item is allowed; else it is ignored.
  absl::StatusOr<Part> OfSchema(const DocumentPlace& schema);

 private:
  static constexpr size_t kMostUnique = 8;

  // The different values of the items where a schema lists so few; else none.
  absl::StatusOr<std::vector<OrderedJson>> ListedItems(const DocumentPlace& schema);
  Part Subsets(const std::string& name, const std::vector<OrderedJson>& values, int least,
               int most);

  JsonRules& rules_;
  SchemaParts& schemas_;
  int64_t left_bytes_ = 1 << 19;  // of values that may be listed
};

}  // namespace coppice::grammar
