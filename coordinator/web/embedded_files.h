// The files of this folder, as the program holds them. cmake/CoppiceEmbed.cmake writes the source
// when it builds. Read-only.
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace coppice::coordinator {

struct EmbeddedFile {
  absl::string_view name;  // "page.html"
  absl::string_view content;
};

absl::Span<const EmbeddedFile> EmbeddedFiles();

}  // namespace coppice::coordinator
