#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::comm {
namespace {

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(size_t bytes) {
  const int fd = memfd_create("coppice", MFD_CLOEXEC);
  if (fd < 0) return Failed("memfd_create");
  // The memory is allocated here. At the first write a failure would be a signal.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    errno = error;
    const absl::Status status = Failed(absl::StrCat(bytes, " bytes"));
    close(fd);
    return status;
  }
  return Map(fd, bytes);
}

absl::StatusOr<SharedMemory> SharedMemory::Open(int64_t pid, int fd, size_t bytes) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", fd);
  const int mine = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (mine < 0) return Failed(path);
  struct stat file = {};
  if (fstat(mine, &file) != 0 || static_cast<size_t>(file.st_size) != bytes) {
    close(mine);
    return absl::UnavailableError(
        absl::StrCat("shared memory: ", path, " has ", file.st_size, " bytes, not ", bytes));
  }
  return Map(mine, bytes);
}

absl::StatusOr<SharedMemory> SharedMemory::Map(int fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    const absl::Status status = Failed("mmap");
    close(fd);
    return status;
  }
  return SharedMemory(fd, static_cast<char*>(data), bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory::~SharedMemory() {
  Close();
  if (data_ != nullptr) munmap(data_, size_);
}

void SharedMemory::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace coppice::comm
