// A file mapped read-only into memory. Pages are read when touched and can be released.
// Immutable, movable; the mapping ends with the object.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace coppice {

class MappedFile {
 public:
  // NotFound or InvalidArgument names the path and the reason (missing, empty, not a regular file).
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  absl::Span<const char> bytes() const { return {data_, size_}; }
  // Releases the pages of `range`, which lies in bytes(). They can still be read.
  void Drop(absl::Span<const char> range) const;
  // Reads from the file without touching its mapping. Returns fewer bytes only at the end of file.
  std::string Sample(size_t offset, size_t length) const;

 private:
  MappedFile() = default;

  std::string path_;
  int descriptor_ = -1;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace coppice
