// Where the members of a ZIP archive lie that stores them without compression, as PyTorch writes it.
// The bytes are untrusted. Called by torch_file.cc. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace coppice::model {

// Bytes from the start of the file.
struct ZipMember {
  uint64_t begin = 0, end = 0;
};

// `file` is the whole file; only its directory and the headers of its members are read. By name.
// InvalidArgument names PATH and what was expected: no archive, a member that is compressed, one
// outside of the file, two of one name.
absl::StatusOr<std::map<std::string, ZipMember>> ReadZipDirectory(const std::string& path,
                                                                  absl::Span<const char> file);

}  // namespace coppice::model
