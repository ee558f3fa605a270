// What a request asks of a catalogue, and its text (FormatSpec of kind kCatalogue). The coordinator
// writes it, the nodes read it. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "catalogue/catalogue_format.h"

namespace coppice::catalogue {

struct CatalogueQuery {
  std::string name;          // of a served catalogue
  uint64_t fingerprint = 0;  // of its content: items have numbers only within one content
  Selection selection;
};

std::string QueryText(const CatalogueQuery& query);
// InvalidArgument: the text is not one that QueryText wrote.
absl::StatusOr<CatalogueQuery> ParseQuery(absl::string_view text);

// A fingerprint as 16 hexadecimal digits.
std::string FingerprintText(uint64_t fingerprint);

}  // namespace coppice::catalogue
