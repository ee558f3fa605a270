#include "catalogue/file_header.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "catalogue/content_hash.h"

namespace coppice::catalogue {
namespace {

// The numbers of nodes and items that the types of the trie can have.
constexpr uint64_t kMostNodes = (uint64_t{1} << 31) - 2;
constexpr uint64_t kMostTextBytes = uint64_t{1} << 40;

absl::Status Bad(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

}  // namespace

absl::string_view ItemEndName(ItemEnd end) { return end == ItemEnd::kNone ? "none" : "stop"; }

absl::StatusOr<ItemEnd> ParseItemEnd(absl::string_view name) {
  for (const ItemEnd end : {ItemEnd::kNone, ItemEnd::kStop}) {
    if (name == ItemEndName(end)) return end;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is no end of an item, expected none or stop"));
}

uint64_t FileHeader::Fingerprint() const {
  const uint64_t parts[] = {static_cast<uint64_t>(end), vocab_size, vocabulary, trie_hash,
                            texts_hash};
  return Xxh64({reinterpret_cast<const char*>(parts), sizeof(parts)});
}

uint64_t FileHeader::Hash() const {
  return Xxh64({reinterpret_cast<const char*>(this), offsetof(FileHeader, header_hash)});
}

absl::StatusOr<FileHeader> FileHeader::Read(const std::string& path, absl::string_view bytes,
                                            uint64_t file_size) {
  FileHeader header;
  uint64_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  if (magic != kMagic) return Bad(path, "not a catalogue, which coppice-catalogue compiles");
  if (bytes.size() < sizeof(header)) {
    return Bad(path, absl::StrCat("cut off: ", file_size, " bytes, the header alone has ",
                                  sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != kVersion) {
    return Bad(path, absl::StrCat("a catalogue of version ", header.version, ", expected ",
                                  kVersion, ": compile it again"));
  }
  if (header.header_hash != header.Hash()) return Bad(path, "the header is damaged");
  const bool sane = header.end <= ItemEnd::kStop && header.vocab_size - 1 < INT32_MAX &&
                    header.nodes - 2 < kMostNodes && header.items - 1 < header.nodes &&
                    header.text_bytes <= kMostTextBytes && std::has_single_bit(header.slots) &&
                    header.slots > header.items && header.slots / 8 <= header.items &&
                    header.fingerprint == header.Fingerprint();
  if (!sane) return Bad(path, "the header contradicts itself");
  if (file_size != header.file_bytes()) {
    return Bad(path, absl::StrCat(file_size < header.file_bytes() ? "cut off: " : "too long: ",
                                  file_size, " bytes, expected ", header.file_bytes()));
  }
  return header;
}

}  // namespace coppice::catalogue
