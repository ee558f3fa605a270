#include "tokenizer/tokenizer.h"

#include "base/status.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/vocab_folder.h"
#include "tokenizer/vocabulary.h"

namespace coppice::tokenizer {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& dir) {
  COPPICE_ASSIGN_OR_RETURN(const SpecialTokenSettings settings, ReadSpecialTokenSettings(dir));
  const std::string json = dir + "/tokenizer.json";
  if (FileExists(json)) return LoadBpeTokenizer(json, settings);
  const std::string sentencepiece = dir + "/tokenizer.model";
  if (FileExists(sentencepiece)) return LoadSentencePieceTokenizer(sentencepiece, settings);
  if (FileExists(dir + "/vocab.json") || FileExists(dir + "/merges.txt"))
    return LoadVocabFolder(dir, settings);
  std::string found;
  for (const char* other : {"tekken.json", "qwen.tiktoken", "spiece.model", "vocab.txt"}) {
    if (FileExists(dir + "/" + other))
      found = absl::StrCat("; ", other, " is there, but is not supported");
  }
  return absl::NotFoundError(absl::StrCat(
      dir, ": no tokenizer: expected tokenizer.json, tokenizer.model, or vocab.json and merges.txt",
      found));
}

// Here and not in vocabulary.cc, which then needs none of the tokenizers.
absl::StatusOr<std::shared_ptr<const Vocabulary>> Vocabulary::Load(const std::string& folder) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(folder));
  return std::make_shared<const Vocabulary>(*tokenizer);
}

}  // namespace coppice::tokenizer
