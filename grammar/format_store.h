// The formats of a node: each is compiled once; the most recently requested are kept. Those of
// catalogues are their store's. A format that
// has used up half of its states is compiled again, so that it does not fail the sequences that
// share it. Owned by a worker's engine or a draft node. Thread-compatible.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/output_format.h"
#include "catalogue/catalogue_store.h"
#include "grammar/token_grammar.h"
#include "tokenizer/vocabulary.h"

namespace coppice::grammar {

class FormatStore {
 public:
  // vocabulary: nullptr if the node has none; then only catalogues can be served. catalogues:
  // nullptr if it has none.
  explicit FormatStore(std::shared_ptr<const tokenizer::Vocabulary> vocabulary,
                       std::shared_ptr<catalogue::CatalogueStore> catalogues = nullptr);

  const std::shared_ptr<const tokenizer::Vocabulary>& vocabulary() const { return vocabulary_; }
  // ends: ids that end a hypothesis. FailedPrecondition: there is no vocabulary, or no such
  // catalogue.
  absl::StatusOr<std::shared_ptr<const OutputFormat>> Find(const FormatSpec& spec,
                                                           std::vector<TokenId> ends);

 private:
  struct Entry {
    FormatSpec spec;
    std::vector<TokenId> ends;
    std::shared_ptr<const TokenGrammar> format;
  };
  void DropOld();

  std::shared_ptr<const tokenizer::Vocabulary> vocabulary_;
  std::shared_ptr<catalogue::CatalogueStore> catalogues_;
  std::shared_ptr<const TokenTrie> trie_;  // made when first needed
  std::list<Entry> entries_;               // most recently requested first
};

}  // namespace coppice::grammar
