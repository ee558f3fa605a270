#include "catalogue/item_texts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catalogue/content_hash.h"

namespace coppice::catalogue {
namespace {

constexpr size_t kSlotsTogether = 16;         // that one read gets
constexpr uint64_t kMostSlotsRead = 1 << 16;  // in a table that is not damaged a search ends sooner
constexpr uint64_t kMostItemBytes = 1 << 20;  // id and name together
constexpr size_t kPiece = 1 << 20;            // bytes of a read of Check

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

}  // namespace

uint64_t SlotsFor(uint64_t items) { return std::bit_ceil(items + items / 2 + 1); }

ItemTexts::ItemTexts(int descriptor, const FileHeader& header)
    : descriptor_(descriptor), header_(header), stamp_(ReadStamp()) {}

ItemTexts::~ItemTexts() { close(descriptor_); }

ItemTexts::Stamp ItemTexts::ReadStamp() const {
  struct stat about;
  if (fstat(descriptor_, &about) != 0) return {};
  // The time of the change of the inode is no use: a rename over the name changes it too.
  return {about.st_size, Nanoseconds(about.st_mtim)};
}

bool ItemTexts::FileChanged() const { return !(ReadStamp() == stamp_); }

bool ItemTexts::Read(uint64_t at, void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(descriptor_, static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

std::optional<ItemText> ItemTexts::ReadItem(int64_t item) const {
  uint64_t range[2];
  if (!Read(header_.offsets_at() + 8 * item, range, sizeof(range))) return std::nullopt;
  uint32_t id_bytes;
  if (range[1] > header_.text_bytes || range[0] > range[1] ||
      range[1] - range[0] < sizeof(id_bytes) || range[1] - range[0] > kMostItemBytes) {
    return std::nullopt;
  }
  std::string text(range[1] - range[0], '\0');
  if (!Read(header_.texts_at() + range[0], text.data(), text.size())) return std::nullopt;
  std::memcpy(&id_bytes, text.data(), sizeof(id_bytes));
  text.erase(0, sizeof(id_bytes));
  if (id_bytes > text.size()) return std::nullopt;
  return ItemText{text.substr(0, id_bytes), text.substr(id_bytes)};
}

// What was read counts if the file has not changed before or while it was read.
ItemText ItemTexts::Text(int64_t item) const {
  const std::optional<ItemText> text = ReadItem(item);
  return text.has_value() && !FileChanged() ? *text : ItemText();
}

int64_t ItemTexts::Search(absl::string_view id) const {
  std::vector<uint32_t> slots(std::min<uint64_t>(kSlotsTogether, header_.slots));
  uint64_t slot = FirstSlot(Xxh64(id), header_.slots);
  for (uint64_t seen = 0; seen < std::min(header_.slots, kMostSlotsRead);) {
    const size_t count = std::min<uint64_t>(slots.size(), header_.slots - slot);
    if (!Read(header_.slots_at() + 4 * slot, slots.data(), 4 * count)) return -1;
    for (size_t i = 0; i < count; ++i) {
      if (slots[i] == 0) return -1;
      if (slots[i] > header_.items) continue;
      const std::optional<ItemText> text = ReadItem(slots[i] - 1);
      if (text.has_value() && text->id == id) return slots[i] - 1;
    }
    seen += count;
    slot = (slot + count) & (header_.slots - 1);
  }
  return -1;
}

int64_t ItemTexts::Find(absl::string_view id) const {
  const int64_t item = Search(id);
  return FileChanged() ? -1 : item;
}

absl::Status ItemTexts::Check() const {
  ContentHash hash;
  std::string piece;
  for (uint64_t at = header_.offsets_at(); at < header_.file_bytes(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(kPiece, header_.file_bytes() - at));
    if (!Read(at, piece.data(), piece.size()))
      return absl::InvalidArgumentError(absl::StrCat("cannot be read at byte ", at));
    hash.Add(piece);
  }
  if (hash.Value() != header_.texts_hash)
    return absl::InvalidArgumentError("the ids and names are damaged");
  for (uint64_t item = 0; item < header_.items; ++item) {
    const std::optional<ItemText> text = ReadItem(static_cast<int64_t>(item));
    if (!text.has_value() || Search(text->id) != static_cast<int64_t>(item))
      return absl::InvalidArgumentError(absl::StrCat("item ", item, " is not found by its id"));
  }
  return FileChanged() ? absl::InvalidArgumentError("changed while it was read") : absl::OkStatus();
}

}  // namespace coppice::catalogue
