// What the parts of the reader of JSON schemas ask it for. Not thread-safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"

namespace coppice::grammar {

class SchemaParts {
 public:
  virtual ~SchemaParts() = default;
  // The rule of a schema. It is read later, because schemas may refer to themselves.
  virtual Part RuleOf(const DocumentPlace& schema) = 0;
  // The rule of the values that fulfil all of the schemas.
  virtual absl::StatusOr<Part> RuleOfAll(const std::vector<DocumentPlace>& schemas) = 0;
  // Reads a schema at once. It must not refer to itself.
  virtual absl::StatusOr<Part> ReadNow(const DocumentPlace& schema) = 0;
  // What a "$ref" of the place leads to. Follows further ones that stand alone.
  virtual absl::StatusOr<DocumentPlace> Resolved(DocumentPlace schema) = 0;
  // A schema that the document has in another form. It lives as long as the reader; equal ones are
  // the same. InvalidArgument: there are too many.
  virtual absl::StatusOr<DocumentPlace> Made(OrderedJson schema, const std::string& pointer) = 0;
  // The keyword of the schema is ignored.
  virtual void Ignored(const DocumentPlace& schema, absl::string_view keyword) = 0;
};

}  // namespace coppice::grammar
