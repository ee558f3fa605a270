#include "model/draft_vocabulary.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::model {

absl::StatusOr<std::vector<TokenId>> ReadDraftVocabulary(const ModelConfig& config,
                                                         Checkpoint* checkpoint) {
  std::vector<TokenId> ids;
  if (config.draft_vocab_size == 0) return ids;
  const std::string name = "d2t";
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int64_t> distances,
                           checkpoint->Integers(name, config.draft_vocab_size));
  for (int64_t row = 0; row < config.draft_vocab_size; ++row) {
    const int64_t distance = distances[row];
    if (distance < -row || distance >= config.vocab_size - row) {
      return checkpoint->Error(
          name, absl::StrCat("row ", row, " has ", distance, ", expected ", -row, " to ",
                             config.vocab_size - 1 - row, ", which are the ids of the vocabulary"));
    }
    const auto id = static_cast<TokenId>(row + distance);
    if (row > 0 && id <= ids.back()) {
      return checkpoint->Error(
          name, absl::StrCat("row ", row, " is id ", id, ", expected more than ", ids.back(),
                             ", the id of the row before"));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace coppice::model
