// Reads the files that a program is given: of a model or tokenizer, settings, keys. They must be
// regular files (links are followed) of a size that their kind can have, so that a pipe, a device
// or a wrong file is an error at once. Every error names the file. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace coppice {

// The size limit for config.json and similar files, chat templates, configurations, keys and
// certificates.
inline constexpr uint64_t kMostSettingsBytes = uint64_t{16} << 20;
// The size limit for tokenizer.json, tokenizer.model and the index of a checkpoint's shards.
inline constexpr uint64_t kMostTableBytes = uint64_t{256} << 20;

// Opens for reading; the caller closes the descriptor. NotFound: it cannot be opened.
// InvalidArgument: not a regular file, or larger.
absl::StatusOr<int> OpenRegularFile(const std::string& path, uint64_t most_bytes);
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t most_bytes);
// For files that a library opens itself.
absl::Status CheckRegularFile(const std::string& path, uint64_t most_bytes);

}  // namespace coppice
