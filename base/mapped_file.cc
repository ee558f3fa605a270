#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // A file of any size is accepted, because pages are read when touched.
  COPPICE_ASSIGN_OR_RETURN(file.descriptor_, OpenRegularFile(path, INT64_MAX));
  struct stat info;
  if (fstat(file.descriptor_, &info) != 0)
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (info.st_size == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": the file is empty"));
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot be mapped: ", std::strerror(errno)));
  }
  file.data_ = static_cast<const char*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  if (descriptor_ >= 0) close(descriptor_);
}

// If a dropped page also holds part of another tensor, it is read again when next touched.
void MappedFile::Drop(absl::Span<const char> range) const {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(range.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(range.data()) + range.size();
  // Only a hint: failure is harmless.
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string MappedFile::Sample(size_t offset, size_t length) const {
  std::string sample(offset < size_ ? std::min(length, size_ - offset) : 0, '\0');
  const ssize_t got = pread(descriptor_, sample.data(), sample.size(), static_cast<off_t>(offset));
  sample.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return sample;
}

}  // namespace coppice
