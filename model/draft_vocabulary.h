// The ids that the rows of a draft vocabulary stand for (ModelConfig::draft_vocab_size), as draft
// folders of EAGLE-3 store them: tensor d2t [draft_vocab_size] of I64, where row i is id i +
// d2t[i]. Called by weights.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace coppice::model {

// Ascending, distinct, within the vocabulary; empty when the head is whole. Errors name the file,
// the tensor and what was expected.
absl::StatusOr<std::vector<TokenId>> ReadDraftVocabulary(const ModelConfig& config,
                                                         Checkpoint* checkpoint);

}  // namespace coppice::model
