#include "tokenizer/tokenizer.h"

#include "base/status.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace coppice::tokenizer {

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& dir) {
  COPPICE_ASSIGN_OR_RETURN(const SpecialTokenSettings settings, ReadSpecialTokenSettings(dir));
  const std::string json = dir + "/tokenizer.json";
  if (FileExists(json)) return LoadBpeTokenizer(json, settings);
  const std::string sentencepiece = dir + "/tokenizer.model";
  if (FileExists(sentencepiece)) return LoadSentencePieceTokenizer(sentencepiece, settings);
  return absl::NotFoundError(absl::StrCat(dir, ": expected tokenizer.json or tokenizer.model"));
}

}  // namespace coppice::tokenizer
