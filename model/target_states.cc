#include "model/target_states.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "model/draft_checkpoint.h"
#include "model/fingerprint.h"

namespace coppice::model {
namespace {

absl::Status Misfit(const std::string& dir, absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(dir, "/config.json: ", field, ": ", what));
}

absl::Status CheckEqual(const std::string& dir, absl::string_view field, int found, int expected,
                        const std::string& target) {
  if (found == expected) return absl::OkStatus();
  return Misfit(dir, field,
                absl::StrCat(found, ", expected ", expected, " as the target ", target, " has"));
}

// EAGLE-3 joins a low, a middle and a high layer if nothing else is said.
absl::Status SetDefaultLayers(const std::string& dir, const ModelConfig& target,
                              ModelConfig* draft) {
  constexpr int kLeast = 7;  // so that they ascend
  const int n = target.num_layers;
  if (n < kLeast) {
    return Misfit(dir, "eagle_config.eagle_aux_hidden_state_layer_ids",
                  absl::StrCat("missing, expected the layers since the target has only ", n));
  }
  draft->states.layers = {1, n / 2 - 1, n - 4};
  return absl::OkStatus();
}

// The beginning and the end of some rows.
void AddSamples(const kernels::MatrixSource& matrix, Fingerprint* fingerprint) {
  constexpr int64_t kRows = 64, kBytes = 64;
  const int64_t stride = kernels::RowBytes(matrix.dtype, matrix.row_stride);
  const int64_t bytes = kernels::RowBytes(matrix.dtype, matrix.columns);
  const int64_t rows = std::min(kRows, matrix.rows);
  for (int64_t i = 0; i < rows; ++i) {
    const char* const row = static_cast<const char*>(matrix.data) + i * matrix.rows / rows * stride;
    const int64_t size = std::min(kBytes, bytes);
    fingerprint->Add({row, static_cast<size_t>(size)});
    fingerprint->Add({row + bytes - size, static_cast<size_t>(size)});
  }
}

// The vectors beside the matrix.
struct JoiningVector {
  std::string name;
  int64_t size = 0;
};

std::vector<JoiningVector> JoiningVectors(const ModelConfig& draft, const Checkpoint& checkpoint) {
  const TargetStates& states = draft.states;
  std::vector<JoiningVector> vectors;
  if (checkpoint.Has("fc.bias")) vectors.push_back({"fc.bias", draft.hidden_size});
  if (states.norm == TargetStates::Norm::kWhole)
    vectors.push_back({"input_norm.weight", int64_t{states.count()} * states.size});
  for (int i = 0; states.norm == TargetStates::Norm::kEach && i < states.count(); ++i)
    vectors.push_back({absl::StrCat("fc_norm.", i, ".weight"), states.size});
  if (states.use == TargetStates::Use::kContext)
    vectors.push_back({"hidden_norm.weight", draft.hidden_size});
  return vectors;
}

// Its values, which must be finite.
absl::StatusOr<std::vector<float>> ReadVector(const JoiningVector& vector, Checkpoint* checkpoint) {
  COPPICE_ASSIGN_OR_RETURN(std::vector<float> values,
                           checkpoint->Vector(vector.name, vector.size, 0, vector.size));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return checkpoint->Error(
        vector.name, absl::StrCat("element ", i, " is ", values[i], ", expected a finite number"));
  }
  return values;
}

int64_t JoinedColumns(const TargetStates& states) { return int64_t{states.count()} * states.size; }

absl::Status AddVector(const JoiningVector& vector, Checkpoint* checkpoint,
                       Fingerprint* fingerprint) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<float> values, ReadVector(vector, checkpoint));
  fingerprint->Add(vector.name);
  fingerprint->Add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  return absl::OkStatus();
}

}  // namespace

absl::Status FitToTarget(const std::string& dir, const std::string& target_dir,
                         const ModelConfig& target, ModelConfig* draft) {
  if (target.takes_states()) {
    return absl::InvalidArgumentError(
        absl::StrCat(target_dir, ": ", target.architecture,
                     " takes states of a target itself, expected the target of ", dir));
  }
  COPPICE_RETURN_IF_ERROR(
      CheckEqual(dir, "vocab_size", draft->vocab_size, target.vocab_size, target_dir));
  COPPICE_RETURN_IF_ERROR(
      CheckEqual(dir, "target_hidden_size", draft->states.size, target.hidden_size, target_dir));
  if (draft->states.layers.empty()) COPPICE_RETURN_IF_ERROR(SetDefaultLayers(dir, target, draft));
  for (const int layer : draft->states.layers) {
    if (layer >= 0 && layer < target.num_layers - 1) continue;
    return Misfit(
        dir, "layers of the target",
        absl::StrCat("the output of layer ", layer, ", expected 0 to ", target.num_layers - 2,
                     ", since ", target_dir, " has ", target.num_layers, " layers"));
  }
  if (!draft->states.any_positions) return absl::OkStatus();
  draft->max_positions = target.max_positions;
  for (kernels::RopeConfig& rope : draft->ropes) rope.max_positions = target.max_positions;
  return absl::OkStatus();
}

absl::StatusOr<ModelConfig> ReadDraftConfig(const std::string& dir, const std::string& target) {
  COPPICE_ASSIGN_OR_RETURN(ModelConfig draft, ReadModelConfig(dir));
  if (!draft.takes_states() || target.empty()) return draft;
  COPPICE_ASSIGN_OR_RETURN(const ModelConfig of_target, ReadModelConfig(target));
  COPPICE_RETURN_IF_ERROR(FitToTarget(dir, target, of_target, &draft));
  return draft;
}

absl::Status CheckJoiningTensors(const ModelConfig& draft, Checkpoint* checkpoint) {
  if (!draft.takes_states()) return absl::OkStatus();
  if (checkpoint->Has("mask_hidden")) {
    return checkpoint->Error("mask_hidden",
                             "a head that drafts several tokens in one pass is not served yet");
  }
  COPPICE_RETURN_IF_ERROR(
      checkpoint->CheckMatrix(kJoiningMatrix, draft.hidden_size, JoinedColumns(draft.states)));
  for (const JoiningVector& vector : JoiningVectors(draft, *checkpoint))
    COPPICE_RETURN_IF_ERROR(ReadVector(vector, checkpoint).status());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> StatesFingerprint(const ModelConfig& draft, Checkpoint* checkpoint) {
  const TargetStates& states = draft.states;
  Fingerprint fingerprint;
  fingerprint.Add(absl::StrCat(static_cast<int>(states.use), " ", absl::StrJoin(states.layers, ","),
                               " ", draft.hidden_size, " ", states.size, " ",
                               static_cast<int>(states.norm)));
  COPPICE_ASSIGN_OR_RETURN(
      const kernels::MatrixSource matrix,
      checkpoint->Matrix(kJoiningMatrix, draft.hidden_size, JoinedColumns(states)));
  AddSamples(matrix, &fingerprint);
  checkpoint->Release(kJoiningMatrix);
  for (const JoiningVector& vector : JoiningVectors(draft, *checkpoint))
    COPPICE_RETURN_IF_ERROR(AddVector(vector, checkpoint, &fingerprint));
  return fingerprint.value();
}

absl::StatusOr<uint64_t> StatesFingerprint(const std::string& dir, const std::string& target) {
  COPPICE_ASSIGN_OR_RETURN(const ModelConfig draft, ReadDraftConfig(dir, target));
  if (!draft.takes_states()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": ", draft.architecture, " takes no states of a target"));
  }
  COPPICE_ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(dir, draft, target));
  return StatesFingerprint(draft, checkpoint.get());
}

}  // namespace coppice::model
