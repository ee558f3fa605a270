// The layout of a catalogue's file: this header, then, without gaps, in the machine's byte order
// (little-endian):
//
//   nodes    [nodes + 1] {token u32, first child u32}   the trie, item_trie.h
//   ends     [(nodes + 63) / 64] u64                    the nodes at which an item ends
//   offsets  [items + 1] u64                            where the text of each item begins
//   texts    [text_bytes]                               of each item: u32 bytes of its id, id, name
//   slots    [slots] u32                                hash table of ids: item + 1, or 0
//
// Written by catalogue_builder, read by catalogue. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::catalogue {

// What follows the last token of an item.
enum class ItemEnd : uint32_t {
  kNone = 0,  // nothing: the token completes the hypothesis, and no item begins another one
  kStop = 1,  // an id that ends a hypothesis, whose probability counts
};
absl::string_view ItemEndName(ItemEnd end);  // "none", "stop"
absl::StatusOr<ItemEnd> ParseItemEnd(absl::string_view name);

struct FileHeader {
  static constexpr uint64_t kMagic = 0x3154414343504f43;  // "COPCCAT1" as bytes
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  ItemEnd end = ItemEnd::kNone;
  uint64_t vocab_size = 0;
  uint64_t vocabulary = 0;   // VocabularyFingerprint of the tokenizer
  uint64_t fingerprint = 0;  // of the content: Fingerprint()
  uint64_t nodes = 0;        // of the trie, the root included
  uint64_t items = 0;
  uint64_t text_bytes = 0;
  uint64_t slots = 0;        // a power of two
  uint64_t trie_hash = 0;    // ContentHash of nodes and ends
  uint64_t texts_hash = 0;   // ContentHash of offsets, texts and slots
  uint64_t header_hash = 0;  // Xxh64 of all above

  uint64_t ends_at() const { return sizeof(FileHeader) + 8 * (nodes + 1); }
  uint64_t offsets_at() const { return ends_at() + 8 * ((nodes + 63) / 64); }
  uint64_t texts_at() const { return offsets_at() + 8 * (items + 1); }
  uint64_t slots_at() const { return texts_at() + text_bytes; }
  uint64_t file_bytes() const { return slots_at() + 4 * slots; }

  // Of everything that decides the answers; the same wherever the file was compiled.
  uint64_t Fingerprint() const;
  uint64_t Hash() const;
  // InvalidArgument "PATH: what" if `bytes`, those of the file from its begin, are no header of
  // this version, or not that of a file of file_size bytes.
  static absl::StatusOr<FileHeader> Read(const std::string& path, absl::string_view bytes,
                                         uint64_t file_size);
};
static_assert(sizeof(FileHeader) == 96);

}  // namespace coppice::catalogue
