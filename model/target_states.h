// What a draft takes of its target, as far as only both configurations together say it. Called where
// such a draft is loaded, where its target keeps states for it, and where the two are checked. Pure
// but for reading files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace coppice::model {

// Completes the configuration of a draft in `dir` that takes states by that of its target in
// `target_dir`: layers by default, and positions, of which it then serves as many as the target.
// InvalidArgument names the folder and field that does not fit, with what was found and expected.
absl::Status FitToTarget(const std::string& dir, const std::string& target_dir,
                         const ModelConfig& target, ModelConfig* draft);

// ReadModelConfig of a draft, with FitToTarget if it takes states. target: a folder or file; "": the
// draft's own configuration must do.
absl::StatusOr<ModelConfig> ReadDraftConfig(const std::string& dir, const std::string& target);

// The tensor that joins the states: [hidden_size, layers * size].
inline constexpr char kJoiningMatrix[] = "fc.weight";

// Checks the tensors that join states, which the target computes: missing ones, shapes, types, norms
// that are not finite. Errors as those of LoadWeights. Nothing for a model that takes none.
absl::Status CheckJoiningTensors(const ModelConfig& draft, Checkpoint* checkpoint);

// A hash of what makes states of the target's layers: which they are, the matrix that joins them, and
// norms. Equal where a target's states are those that the draft expects. Of the matrix it reads
// samples. checkpoint: of the draft, by OpenCheckpoint. The configuration must be complete.
absl::StatusOr<uint64_t> StatesFingerprint(const ModelConfig& draft, Checkpoint* checkpoint);
// The same of a draft's folder and its target.
absl::StatusOr<uint64_t> StatesFingerprint(const std::string& dir, const std::string& target);

}  // namespace coppice::model
