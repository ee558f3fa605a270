// The ids that the rows of a reduced head stand for (ModelConfig::reduced_head), as draft folders of
// EAGLE-3 store them: tensor d2t [reduced_head] of I64, where row i is id i + d2t[i]. Called by
// weights.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace coppice::model {

// Ascending, distinct, within the vocabulary; empty when the head is whole. Errors name the file, the
// tensor and what was expected.
absl::StatusOr<std::vector<TokenId>> ReadHeadIds(const ModelConfig& config, Checkpoint* checkpoint);

}  // namespace coppice::model
