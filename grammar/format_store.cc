#include "grammar/format_store.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status.h"
#include "grammar/compile.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostEntries = 256;
constexpr size_t kMostBytes = size_t{256} << 20;  // memory of formats that no sequence uses

}  // namespace

FormatStore::FormatStore(std::shared_ptr<const tokenizer::Vocabulary> vocabulary,
                         std::shared_ptr<catalogue::CatalogueStore> catalogues)
    : vocabulary_(std::move(vocabulary)), catalogues_(std::move(catalogues)) {}

absl::StatusOr<std::shared_ptr<const OutputFormat>> FormatStore::Find(const FormatSpec& spec,
                                                                      std::vector<TokenId> ends) {
  if (spec.kind == FormatSpec::Kind::kCatalogue) {
    if (catalogues_ == nullptr)
      return absl::FailedPreconditionError("catalogue: the node was given none (--catalogues)");
    return catalogues_->Find(spec.text, ends);
  }
  if (vocabulary_ == nullptr)
    return absl::FailedPreconditionError("the node found no tokenizer in the folder of its model");
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!(entry->spec == spec && entry->ends == ends)) continue;
    if (entry->format->worn()) {
      entries_.erase(entry);  // forgotten, so that it is made anew
      break;
    }
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().format;
  }
  COPPICE_ASSIGN_OR_RETURN(Automaton automaton, CompileFormat(spec, vocabulary_->own_bytes()));
  if (trie_ == nullptr) trie_ = std::make_shared<TokenTrie>(vocabulary_);
  entries_.push_front(
      {spec, ends, std::make_shared<const TokenGrammar>(trie_, std::move(automaton), ends)});
  DropOld();
  return entries_.front().format;
}

void FormatStore::DropOld() {
  size_t bytes = 0, number = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->format->bytes();
    ++number;
    const bool keep = number == 1 || (number <= kMostEntries && bytes <= kMostBytes);
    entry = keep ? std::next(entry) : entries_.erase(entry);
  }
}

}  // namespace coppice::grammar
