#include "catalogue/vocabulary_check.h"

#include "absl/strings/str_cat.h"
#include "catalogue/content_hash.h"

namespace coppice::catalogue {

uint64_t VocabularyFingerprint(const tokenizer::Vocabulary& vocabulary) {
  uint64_t hash = static_cast<uint64_t>(vocabulary.size());
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    hash = Xxh64(vocabulary.Bytes(token, /*skip_special=*/false), hash);
    hash += vocabulary.Bytes(token, /*skip_special=*/true).empty() ? 1 : 0;
  }
  return hash;
}

absl::Status CheckVocabulary(const Catalogue& catalogue, const tokenizer::Vocabulary& vocabulary,
                             const std::string& model) {
  if (catalogue.vocabulary() == VocabularyFingerprint(vocabulary)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(catalogue.path(), ": compiled for another tokenizer than that of ", model, ", ",
                   catalogue.vocab_size(), " tokens there, ", vocabulary.size(), " here"));
}

}  // namespace coppice::catalogue
