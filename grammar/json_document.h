// The text of a JSON schema as a document, and places in it. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::grammar {

// Members in the order of the text.
using OrderedJson = nlohmann::ordered_json;

// InvalidArgument: not JSON, nested more than kMostNested, a key that occurs twice in an object, or
// an object with more members than are read.
absl::StatusOr<OrderedJson> ParseSchemaDocument(absl::string_view text);

// The JSON pointer one step further down. Only errors show it, so it is cut where it would be too
// long.
std::string PointerTo(absl::string_view pointer, absl::string_view key);
absl::Status SchemaError(absl::string_view pointer, absl::string_view what);

struct DocumentPlace {
  const OrderedJson* value;
  std::string pointer;  // "#/..."
};
bool Has(const DocumentPlace& place, absl::string_view key);
// One step further down, to what is there.
DocumentPlace At(const DocumentPlace& place, absl::string_view key);
DocumentPlace At(const DocumentPlace& place, size_t index);

// Resolves a "$ref": "#" or "#/...", percent-encoded as in a URI. The error does not name the
// place.
absl::StatusOr<DocumentPlace> FindReference(const OrderedJson& document,
                                            absl::string_view reference);

inline constexpr const char* kDefinitions[] = {"$defs", "definitions"};
bool HasReference(const OrderedJson& value);
// Where each property of an object's schema stands as a document of its own, those with a reference
// get copies of all definitions. InvalidArgument: these would be too large. "properties" is an
// object.
absl::Status CheckDefinitionCopies(const OrderedJson& schema);

// The value on one line without spaces.
std::string CompactJson(const OrderedJson& value);

}  // namespace coppice::grammar
