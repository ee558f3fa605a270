#include "catalogue/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::catalogue {
namespace {

constexpr size_t kPendingBytes = 1 << 20;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("a temporary file cannot be ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::Make(const std::string& path) {
  std::string name = absl::StrCat(path, ".XXXXXX");
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0)
    return absl::NotFoundError(absl::StrCat(path, ": cannot be made: ", std::strerror(errno)));
  unlink(name.c_str());
  return std::unique_ptr<ScratchFile>(new ScratchFile(descriptor));
}

ScratchFile::~ScratchFile() { close(descriptor_); }

absl::Status ScratchFile::Append(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  return pending_.size() < kPendingBytes ? absl::OkStatus() : Flush();
}

absl::Status ScratchFile::Flush() {
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t wrote = pwrite(descriptor_, pending_.data() + done, pending_.size() - done,
                                 static_cast<off_t>(written_ + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Failed("written");
    done += static_cast<size_t>(wrote);
  }
  written_ += pending_.size();
  pending_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ScratchFile::Read(uint64_t at, size_t bytes) {
  if (!pending_.empty()) COPPICE_RETURN_IF_ERROR(Flush());
  std::string out(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t got =
        pread(descriptor_, out.data() + done, bytes - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Failed("read");
    done += static_cast<size_t>(got);
  }
  return out;
}

}  // namespace coppice::catalogue
