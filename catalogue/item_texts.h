// The ids and names of a catalogue's items, which stay in the file: they are read when asked for,
// with read(2) and not by mapping, so that a file that is cut off or overwritten while it is served
// ends no process. Items of a file that has changed since it was opened have no texts. A file that
// is replaced by rename stays readable. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "catalogue/file_header.h"

namespace coppice::catalogue {

// Slots of the hash table for so many items.
uint64_t SlotsFor(uint64_t items);
// The first slot that an id may have, of a power of two. The following ones are next.
inline uint64_t FirstSlot(uint64_t id_hash, uint64_t slots) { return id_hash & (slots - 1); }

struct ItemText {
  std::string id, name;
};

class ItemTexts {
 public:
  // Takes over the descriptor, of a file with this header.
  ItemTexts(int descriptor, const FileHeader& header);
  ItemTexts(const ItemTexts&) = delete;
  ~ItemTexts();

  bool FileChanged() const;  // since it was opened
  // 0 <= item < items. Empty texts: the file has changed, or is damaged there.
  ItemText Text(int64_t item) const;
  int64_t Find(absl::string_view id) const;  // -1: no item has the id, or the file has changed
  // Reads everything. InvalidArgument: what is damaged, without the file's name.
  absl::Status Check() const;

 private:
  struct Stamp {
    int64_t bytes = -1, written_ns = -1;
    bool operator==(const Stamp&) const = default;
  };
  Stamp ReadStamp() const;
  bool Read(uint64_t at, void* to, size_t bytes) const;
  // As it is in the file now; nullopt: it is damaged there.
  std::optional<ItemText> ReadItem(int64_t item) const;
  int64_t Search(absl::string_view id) const;

  const int descriptor_;
  const FileHeader header_;
  const Stamp stamp_;
};

}  // namespace coppice::catalogue
