// A file without a name for what need not stay in memory while a catalogue is compiled. Used by one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::catalogue {

class ScratchFile {
 public:
  // In the folder of `path`, whose disk gets the compiled file as well.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> Make(const std::string& path);
  ScratchFile(const ScratchFile&) = delete;
  ~ScratchFile();

  uint64_t size() const { return written_ + pending_.size(); }
  absl::Status Append(absl::string_view bytes);
  // at + bytes <= size(). Writes what is pending.
  absl::StatusOr<std::string> Read(uint64_t at, size_t bytes);

 private:
  explicit ScratchFile(int descriptor) : descriptor_(descriptor) {}
  absl::Status Flush();

  const int descriptor_;
  uint64_t written_ = 0;
  std::string pending_;
};

}  // namespace coppice::catalogue
