#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

absl::Status TooLarge(const std::string& path, uint64_t bytes, uint64_t most_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", bytes, " bytes, expected at most ", most_bytes));
}

absl::Status CheckOpened(const std::string& path, int fd, uint64_t most_bytes) {
  struct stat about;
  if (fstat(fd, &about) != 0)
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file but ", KindOf(about.st_mode)));
  }
  const uint64_t bytes = static_cast<uint64_t>(about.st_size);
  return bytes > most_bytes ? TooLarge(path, bytes, most_bytes) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> OpenRegularFile(const std::string& path, uint64_t most_bytes) {
  // O_NONBLOCK: the opening of a pipe does not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  if (absl::Status status = CheckOpened(path, fd, most_bytes); !status.ok()) {
    close(fd);
    return status;
  }
  return fd;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t most_bytes) {
  COPPICE_ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path, most_bytes));
  const absl::Cleanup closes = [fd] { close(fd); };
  std::string bytes;
  char piece[1 << 16];
  for (;;) {  // read to the end of the file, since it may have grown
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) return bytes;
    bytes.append(piece, static_cast<size_t>(got));
    if (bytes.size() > most_bytes) return TooLarge(path, bytes.size(), most_bytes);
  }
}

absl::Status CheckRegularFile(const std::string& path, uint64_t most_bytes) {
  COPPICE_ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path, most_bytes));
  close(fd);
  return absl::OkStatus();
}

}  // namespace coppice
