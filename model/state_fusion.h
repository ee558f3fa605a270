// What joins the hidden states of a target for a draft that takes them (TargetStates): the draft's
// first matrix `fc` and the norms around it. The target applies it in its forward pass
// (transformer.h) and keeps the result, one state for each token, with KV. Loaded once, then
// immutable; on rank 0 alone.
//
//   state = norm(sum over layers of fc_layer norm(output of the layer))
//
// fc_layer: the columns of `fc` that belong to the layer. The sum is taken in the order in which the
// layers are computed, which changes roundings alone where `fc` has them in another order.
//
// A state is 2 H bytes. A pass reads n H d weights and multiplies each row by them: with three layers
// .7 % of what SmolLM2-135M (H = 576: 1,152 bytes beside 23,040 of K and V in bf16) or Llama-3.1-8B
// (H = 4,096: 8,192 beside 131,072) read anyway.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/model_config.h"

namespace coppice::model {

// H = columns(), d = hidden size of the target, n = layers.
struct StateFusion {
  struct Layer {
    int layer = 0;                            // of the target, whose output is taken
    int index = 0;                            // of the layer's columns in `fc`
    std::unique_ptr<kernels::Weight> norm;    // gain [d]; null: none
    std::unique_ptr<kernels::Weight> matrix;  // [H, d]; null with `whole`
  };

  std::string draft;   // its folder; "": the target keeps no states
  ModelConfig config;  // of the draft

  std::vector<Layer> layers;  // in the order of the target
  // TargetStates::Norm::kWhole: the outputs stand beside each other when they are normed.
  std::unique_ptr<kernels::Weight> whole_norm;  // gain [n d]
  std::unique_ptr<kernels::Weight> whole;       // [H, n d]
  std::unique_ptr<kernels::Weight> last_norm;   // gain [H]; null: none
  size_t bytes = 0;                             // of all weights above

  bool empty() const { return draft.empty(); }
  // Of a state: the hidden size of the draft; 0 when empty.
  int columns() const { return empty() ? 0 : config.hidden_size; }
};

// Reads what the draft in a folder takes of its target. InvalidArgument names the folder and field
// that does not fit, what it has and what was expected.
absl::StatusOr<StateFusion> ReadStateFusion(const std::string& draft, const std::string& target_dir,
                                            const ModelConfig& target);

// Packs the weights as `dtype`. Errors name the file, the tensor and what was expected.
absl::Status LoadStateFusion(kernels::DType dtype, kernels::Backend* backend, StateFusion* fusion);

}  // namespace coppice::model
