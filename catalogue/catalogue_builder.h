// Compiles items to the file of a catalogue: collects them, sorts and checks them, builds the trie
// and writes everything to a temporary file that takes the name at the end. Ids and names wait on
// the disk; a million items of four tokens need 120 MiB. Used by coppice-catalogue and by tests; one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "catalogue/file_header.h"
#include "catalogue/item_trie.h"
#include "catalogue/scratch_file.h"

namespace coppice::catalogue {

inline constexpr size_t kMostIdBytes = 4096;
inline constexpr size_t kMostNameBytes = 65536;

class CatalogueBuilder {
 public:
  struct Options {
    std::string source;  // names the items in errors
    std::string output;  // path of the file
    int vocab_size = 0;
    uint64_t vocabulary = 0;  // VocabularyFingerprint
    ItemEnd end = ItemEnd::kNone;
    // Told what is being done, a few times a second at most.
    std::function<void(const std::string& doing)> progress = {};
  };
  static absl::StatusOr<std::unique_ptr<CatalogueBuilder>> Make(Options options);

  // line: of the source, from 1. Errors are InvalidArgument "SOURCE:LINE: what", also those of
  // Write: a token outside of the vocabulary, no token or too many, an id that is empty or too
  // long; then two items with the same tokens or id, and an item that begins another one.
  absl::Status Add(absl::Span<const TokenId> tokens, absl::string_view id, absl::string_view name,
                   uint32_t line);
  int64_t items() const { return static_cast<int64_t>(line_.size()); }
  // Once. The header that was written.
  absl::StatusOr<FileHeader> Write();

 private:
  explicit CatalogueBuilder(Options options) : options_(std::move(options)) {}
  absl::Span<const uint32_t> Tokens(uint32_t item) const {
    return absl::MakeConstSpan(tokens_).subspan(begin_[item], begin_[item + 1] - begin_[item]);
  }
  absl::Status Bad(uint32_t item, absl::string_view what) const;
  void Tell(absl::string_view doing) const;
  void Sort();
  absl::Status CheckNeighbours();
  absl::Status BuildTrie();
  absl::Status HashIds();
  absl::StatusOr<std::string> IdOf(uint32_t item);
  absl::StatusOr<FileHeader> WriteFile(int descriptor);

  const Options options_;
  // As they came, by number in the source.
  std::vector<uint32_t> tokens_;
  std::vector<uint64_t> begin_ = {0};       // [items + 1] into tokens_
  std::vector<uint32_t> line_;              // [items]
  std::vector<uint64_t> text_begin_ = {0};  // [items + 1] into texts_
  std::vector<uint64_t> id_hash_;           // [items]
  std::vector<uint16_t> id_bytes_;          // [items]
  std::unique_ptr<ScratchFile> texts_;      // records as they are in the file
  // Numbers in the source: by tokens until the trie is built, then in the order of the catalogue.
  std::vector<uint32_t> order_;
  std::vector<uint8_t> shared_;  // [items] tokens that an item of order_ shares with the one before
  std::vector<ItemTrie::Node> nodes_;
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> slots_;
};

}  // namespace coppice::catalogue
