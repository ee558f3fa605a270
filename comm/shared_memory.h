// Anonymous memory that the processes of one host share. One process creates it; the others open it
// through /proc while it is open there. It is freed with the last process that has mapped it,
// however that process ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace coppice::comm {

class SharedMemory {
 public:
  // All zero. Unavailable: this system has no such memory, or none left.
  static absl::StatusOr<SharedMemory> Create(size_t bytes);
  // The memory of the process `pid`, where it has the file descriptor `fd`.
  static absl::StatusOr<SharedMemory> Open(int64_t pid, int fd, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_; }  // -1 once it is closed
  void Close();                   // from here on nobody can open it

 private:
  static absl::StatusOr<SharedMemory> Map(int fd, size_t bytes);
  SharedMemory(int fd, char* data, size_t size) : fd_(fd), data_(data), size_(size) {}

  int fd_;
  char* data_;
  size_t size_;
};

}  // namespace coppice::comm
