// A compiled catalogue: token sequences that a request may restrict its outputs to, each with an id
// and a name (README.md). Its trie is read into memory and checked when it is opened, so nothing
// that happens to the file later changes which sequences are allowed. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "catalogue/file_header.h"
#include "catalogue/item_texts.h"
#include "catalogue/item_trie.h"

namespace coppice::catalogue {

class Catalogue {
 public:
  // NotFound or InvalidArgument is one line "PATH: what".
  static absl::StatusOr<std::shared_ptr<const Catalogue>> Open(const std::string& path);
  // Open makes it.
  Catalogue(std::string path, int descriptor, const FileHeader& header, ItemTrie trie);
  Catalogue(const Catalogue&) = delete;

  const std::string& path() const { return path_; }
  int64_t items() const { return trie_.items(); }
  int longest() const { return trie_.longest(); }  // tokens of the longest item
  ItemEnd end() const { return header_.end; }
  int vocab_size() const { return static_cast<int>(header_.vocab_size); }
  // Of the tokenizer (vocabulary_check.h).
  uint64_t vocabulary() const { return header_.vocabulary; }
  // Of everything that decides the answers; the same wherever the items were compiled.
  uint64_t fingerprint() const { return header_.fingerprint; }
  const FileHeader& header() const { return header_; }
  const ItemTrie& trie() const { return trie_; }

  // The item of the tokens, without an id that ends the hypothesis; -1: there is none.
  int64_t ItemOf(absl::Span<const TokenId> tokens) const;
  std::vector<TokenId> Tokens(int64_t item) const;
  // Texts of an item, 0 <= item < items(). They are read from the file, id and name at once: "" and
  // -1 when the file has been overwritten in place.
  ItemText Text(int64_t item) const { return texts_.Text(item); }
  std::string Id(int64_t item) const { return texts_.Text(item).id; }
  std::string Name(int64_t item) const { return texts_.Text(item).name; }
  int64_t FindId(absl::string_view id) const { return texts_.Find(id); }  // -1: none
  bool FileChanged() const { return texts_.FileChanged(); }
  // Reads the rest of the file, too. InvalidArgument "PATH: what" if it is damaged.
  absl::Status Check() const;

 private:
  const std::string path_;
  const FileHeader header_;
  const ItemTrie trie_;
  const ItemTexts texts_;
};

}  // namespace coppice::catalogue
