// JSON schemas that several others make together: "allOf", and keywords beside "$ref", "anyOf",
// "oneOf". One schema is made that allows the same values, where that is possible. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/json_document.h"
#include "grammar/schema_parts.h"

namespace coppice::grammar {

class JsonMerge {
 public:
  // document: where references lead. Both must outlive this.
  JsonMerge(const OrderedJson& document, SchemaParts* schemas)
      : document_(document), schemas_(*schemas) {}

  // Whether a schema must be merged before it is read.
  static bool Needed(const OrderedJson& schema);
  // A schema for the values that fulfil all. InvalidArgument names what cannot be merged; IsNoValue:
  // no value fulfils all.
  absl::StatusOr<DocumentPlace> Merged(const std::vector<DocumentPlace>& schemas);

 private:
  // Appends what the schema demands as schemas that neither refer to others nor have an "allOf".
  absl::Status Collect(const DocumentPlace& schema, std::vector<DocumentPlace>* flat);
  absl::StatusOr<OrderedJson> MergedJson(const std::vector<DocumentPlace>& schemas);

  const OrderedJson& document_;
  SchemaParts& schemas_;
  int left_ = 4000;                     // schemas that may be collected
  int64_t compares_left_ = 50'000'000;  // of keys and values
  int nested_ = 0;
};

}  // namespace coppice::grammar
