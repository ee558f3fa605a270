#include "model/state_fusion.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/draft_checkpoint.h"
#include "model/matrix_stack.h"
#include "model/target_states.h"

namespace coppice::model {
namespace {

using Norm = TargetStates::Norm;

class FusionLoader {
 public:
  FusionLoader(kernels::DType dtype, kernels::Backend* backend, Checkpoint* checkpoint,
               StateFusion* fusion)
      : dtype_(dtype), backend_(backend), checkpoint_(checkpoint), fusion_(fusion) {}

  absl::Status Load() {
    const TargetStates& states = fusion_->config.states;
    const int64_t h = fusion_->columns(), d = states.size, all = states.count() * d;
    COPPICE_ASSIGN_OR_RETURN(fuse_, checkpoint_->Matrix(kJoiningMatrix, h, all));
    if (checkpoint_->Has("fc.bias")) {
      COPPICE_ASSIGN_OR_RETURN(bias_, Finite("fc.bias", h));
    }
    if (states.norm == Norm::kWhole) {
      COPPICE_ASSIGN_OR_RETURN(fusion_->whole_norm, Gain("input_norm.weight", all));
      COPPICE_ASSIGN_OR_RETURN(fusion_->whole, Pack(0, all));
    } else {
      for (StateFusion::Layer& layer : fusion_->layers) {
        if (states.norm == Norm::kEach) {
          COPPICE_ASSIGN_OR_RETURN(layer.norm,
                                   Gain(absl::StrCat("fc_norm.", layer.index, ".weight"), d));
        }
        COPPICE_ASSIGN_OR_RETURN(layer.matrix, Pack(layer.index * d, (layer.index + 1) * d));
      }
    }
    checkpoint_->Release(kJoiningMatrix);
    if (states.use != TargetStates::Use::kContext) return absl::OkStatus();
    COPPICE_ASSIGN_OR_RETURN(fusion_->last_norm, Gain("hidden_norm.weight", h));
    return absl::OkStatus();
  }

 private:
  // Columns [begin, end) of `fc`. The first of the products adds the bias.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Pack(int64_t begin, int64_t end) {
    MatrixStack stack(backend_, dtype_, /*keeps_blocks=*/false);
    stack.AddColumns(fuse_, begin, end);
    auto packed = stack.Pack(std::exchange(bias_, {}));
    if (!packed.ok()) {
      return absl::Status(packed.status().code(), absl::StrCat(fusion_->draft, ": ", kJoiningMatrix,
                                                               ": ", packed.status().message()));
    }
    fusion_->bytes += (*packed)->bytes;
    return packed;
  }

  absl::StatusOr<std::unique_ptr<kernels::Weight>> Gain(const std::string& name, int64_t size) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<float> values, Finite(name, size));
    COPPICE_ASSIGN_OR_RETURN(auto gain, backend_->PackGain(std::move(values)));
    fusion_->bytes += gain->bytes;
    return gain;
  }

  absl::StatusOr<std::vector<float>> Finite(const std::string& name, int64_t size) {
    COPPICE_ASSIGN_OR_RETURN(std::vector<float> values, checkpoint_->Vector(name, size, 0, size));
    for (int64_t i = 0; i < size; ++i) {
      if (std::isfinite(values[i])) continue;
      return checkpoint_->Error(
          name, absl::StrCat("element ", i, " is ", values[i], ", expected a finite number"));
    }
    return values;
  }

  const kernels::DType dtype_;
  kernels::Backend* const backend_;
  Checkpoint* const checkpoint_;
  StateFusion* const fusion_;
  kernels::MatrixSource fuse_;
  std::vector<float> bias_;
};

}  // namespace

absl::StatusOr<StateFusion> ReadStateFusion(const std::string& draft, const std::string& target_dir,
                                            const ModelConfig& target) {
  StateFusion fusion;
  fusion.draft = draft;
  COPPICE_ASSIGN_OR_RETURN(fusion.config, ReadModelConfig(draft));
  if (!fusion.config.takes_states()) {
    return absl::InvalidArgumentError(
        absl::StrCat(draft, ": ", fusion.config.architecture,
                     " takes no states of a target, expected a draft that does"));
  }
  COPPICE_RETURN_IF_ERROR(FitToTarget(draft, target_dir, target, &fusion.config));
  const std::vector<int>& layers = fusion.config.states.layers;
  for (size_t i = 0; i < layers.size(); ++i)
    fusion.layers.push_back({layers[i], static_cast<int>(i), nullptr, nullptr});
  const auto before = [](const auto& a, const auto& b) { return a.layer < b.layer; };
  if (fusion.config.states.norm == Norm::kWhole &&
      !std::is_sorted(fusion.layers.begin(), fusion.layers.end(), before)) {
    return absl::UnimplementedError(absl::StrCat(
        draft, ": norm_before_fc is served only where the layers of the target ascend"));
  }
  std::sort(fusion.layers.begin(), fusion.layers.end(), before);
  return fusion;
}

absl::Status LoadStateFusion(kernels::DType dtype, kernels::Backend* backend, StateFusion* fusion) {
  COPPICE_ASSIGN_OR_RETURN(const auto checkpoint,
                           OpenCheckpoint(fusion->draft, fusion->config, /*target=*/""));
  return FusionLoader(dtype, backend, checkpoint.get(), fusion).Load();
}

}  // namespace coppice::model
