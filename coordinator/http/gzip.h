// Content coding gzip (RFC 1952, RFC 9110 8.4): large answers and request bodies. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::coordinator {

// Whether a client with this Accept-Encoding ("" = it sends none) prefers gzip to no coding.
bool PrefersGzip(absl::string_view accept_encoding);

// Whether Content-Encoding names gzip alone, or nothing but identity. nullopt: another coding, or
// several.
std::optional<bool> IsGzipCoding(absl::string_view content_encoding);

enum class GzipEffort { kFast, kSmall };  // kSmall: for what is compressed once and sent often
// nullopt: no memory.
std::optional<std::string> Gzip(absl::string_view text, GzipEffort effort = GzipEffort::kFast);

// The number of bytes that a gzip file of one member says it has. Gunzip gives no more.
size_t GunzippedSize(absl::string_view file);
// The content of a gzip file of one member. ResourceExhausted: it says that it has more than `most`
// bytes.
absl::StatusOr<std::string> Gunzip(absl::string_view file, size_t most);

}  // namespace coppice::coordinator
