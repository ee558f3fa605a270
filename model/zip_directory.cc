#include "model/zip_directory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::model {
namespace {

// APPNOTE.TXT of PKWARE, 4.3: local header, central directory, its end, and that of ZIP64.
constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46,
                   kLocalBytes = 30, kMostComment = 0xffff;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50,
                   kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kIn64 = 0xffffffff;  // the field is in the ZIP64 record

// Reads numbers at places that are checked.
class ZipReader {
 public:
  ZipReader(const std::string& path, absl::Span<const char> file) : path_(path), file_(file) {}

  absl::StatusOr<std::map<std::string, ZipMember>> Read();

 private:
  struct Directory {
    uint64_t entries = 0, begin = 0;
  };
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }
  bool Holds(uint64_t at, uint64_t bytes) const {
    return at <= file_.size() && bytes <= file_.size() - at;
  }
  // Little-endian. The bytes are there.
  uint64_t Number(uint64_t at, int bytes) const {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
      value |= uint64_t{static_cast<unsigned char>(file_[at + i])} << (8 * i);
    return value;
  }
  std::optional<uint64_t> FindEnd() const;
  absl::StatusOr<Directory> FindDirectory() const;
  absl::StatusOr<ZipMember> ReadMember(uint64_t at, const std::string& name) const;

  const std::string& path_;
  const absl::Span<const char> file_;
};

// The end of the directory has a comment behind it.
std::optional<uint64_t> ZipReader::FindEnd() const {
  for (uint64_t back = kEndBytes; back <= kEndBytes + kMostComment && back <= file_.size();
       ++back) {
    const uint64_t at = file_.size() - back;
    if (Number(at, 4) == kEndMark && Number(at + 20, 2) == back - kEndBytes) return at;
  }
  return std::nullopt;
}

absl::StatusOr<ZipReader::Directory> ZipReader::FindDirectory() const {
  const std::optional<uint64_t> end = FindEnd();
  if (!end) {
    return Error(
        "not a ZIP archive, expected a file of torch.save since PyTorch 1.6, or model.safetensors");
  }
  Directory directory{Number(*end + 10, 2), Number(*end + 16, 4)};
  if (*end < kLocatorBytes || Number(*end - kLocatorBytes, 4) != kLocatorMark) return directory;
  const uint64_t end64 = Number(*end - kLocatorBytes + 8, 8);
  if (!Holds(end64, kEnd64Bytes) || Number(end64, 4) != kEnd64Mark)
    return Error("the ZIP64 end of the directory is not where its locator says");
  return Directory{Number(end64 + 32, 8), Number(end64 + 48, 8)};
}

// at: of the entry in the directory, which is there with its name and extra fields.
absl::StatusOr<ZipMember> ZipReader::ReadMember(uint64_t at, const std::string& name) const {
  const auto fault = [&](const std::string& what) {
    return Error(absl::StrCat("member ", absl::Utf8SafeCEscape(name.substr(0, 200)), ": ", what));
  };
  if ((Number(at + 8, 2) & 1) != 0) return fault("is encrypted");
  if (Number(at + 10, 2) != 0)
    return fault(absl::StrCat("compression ", Number(at + 10, 2), ", expected 0 (stored)"));
  uint64_t packed = Number(at + 20, 4), size = Number(at + 24, 4), local = Number(at + 42, 4);
  uint64_t extra = at + kEntryBytes + Number(at + 28, 2);
  const uint64_t extra_end = extra + Number(at + 30, 2);
  while (extra + 4 <= extra_end) {
    const uint64_t id = Number(extra, 2), end = extra + 4 + Number(extra + 2, 2);
    if (end > extra_end) return fault("an extra field is longer than all of them");
    uint64_t field = extra + 4;
    for (uint64_t* value : {&size, &packed, &local}) {
      if (id != 1 || *value != kIn64) continue;
      if (field + 8 > end) return fault("the ZIP64 field is too short");
      *value = Number(field, 8);
      field += 8;
    }
    extra = end;
  }
  if (packed != size) return fault("is stored with another size than its own");
  if (!Holds(local, kLocalBytes) || Number(local, 4) != kLocalMark)
    return fault("has no header where the directory says");
  const uint64_t begin = local + kLocalBytes + Number(local + 26, 2) + Number(local + 28, 2);
  if (!Holds(begin, size)) return fault("ends beyond the file, which is truncated");
  return ZipMember{begin, begin + size};
}

absl::StatusOr<std::map<std::string, ZipMember>> ZipReader::Read() {
  COPPICE_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
  std::map<std::string, ZipMember> members;
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (!Holds(at, kEntryBytes) || Number(at, 4) != kEntryMark)
      return Error(absl::StrCat("entry ", i, " of the ZIP directory is not there"));
    const uint64_t name = Number(at + 28, 2);
    const uint64_t bytes = kEntryBytes + name + Number(at + 30, 2) + Number(at + 32, 2);
    if (!Holds(at, bytes))
      return Error(absl::StrCat("entry ", i, " of the ZIP directory ends beyond the file"));
    const std::string text(file_.data() + at + kEntryBytes, name);
    COPPICE_ASSIGN_OR_RETURN(const ZipMember member, ReadMember(at, text));
    if (!members.emplace(text, member).second)
      return Error(absl::StrCat("two members ", absl::Utf8SafeCEscape(text.substr(0, 200))));
    at += bytes;
  }
  return members;
}

}  // namespace

absl::StatusOr<std::map<std::string, ZipMember>> ReadZipDirectory(const std::string& path,
                                                                  absl::Span<const char> file) {
  return ZipReader(path, file).Read();
}

}  // namespace coppice::model
