// One rank's packed weights of the decoder, cut from the checkpoint by the shard plan. Loaded once,
// then immutable.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/shard_plan.h"

namespace coppice::model {

// D = head_dim, d = hidden_size, q, kv, f, v, h = this rank's query heads, KV heads, MLP columns,
// vocabulary rows, rows of the head (v, or fewer). Matrices hold their biases. Biases of
// row-parallel products (output, down) are on rank 0 only.
struct LayerWeights {
  std::unique_ptr<kernels::Weight> attention_norm;  // gain [d]
  std::unique_ptr<kernels::Weight> qkv;             // [(q + 2 kv) D, d]
  std::unique_ptr<kernels::Weight> output;          // [d, q D]
  std::unique_ptr<kernels::Weight> mlp_norm;        // gain [d]
  std::unique_ptr<kernels::Weight> gate_up;         // [2 f, d]
  std::unique_ptr<kernels::Weight> down;            // [d, f]
};

struct TransformerWeights {
  std::unique_ptr<kernels::Weight> embedding;  // [v, d]
  std::unique_ptr<kernels::Weight> own_head;   // [h, d]; null when tied
  std::unique_ptr<kernels::Weight> scatter;    // from h to v logits; null when the head is whole
  std::vector<LayerWeights> layers;
  std::unique_ptr<kernels::Weight> final_norm;  // gain [d]
  size_t bytes = 0;                             // bytes of all weights above

  const kernels::Weight& head() const { return own_head != nullptr ? *own_head : *embedding; }
};

// The type of embedding, head and QKV if the other matrices are stored as `dtype`: they are worth 8
// bits (docs/decisions.md, "4-bit weights").
inline kernels::DType FineDType(kernels::DType dtype) {
  return dtype == kernels::DType::kI4 ? kernels::DType::kI8 : dtype;
}

struct WeightsRequest {
  const ModelConfig* config = nullptr;
  ShardPlan plan;
  int rank = 0;
  kernels::DType dtype = kernels::DType::kF32;  // one that the backend stores
  bool keeps_blocks = false;  // matrices in a block format stay in it, if the backend stores it
  std::function<void(double fraction)> progress;  // may be empty
};

// Packs one matrix at a time and releases its pages before the next, so peak memory is the packed
// weights plus one matrix. Errors name the file, the tensor and what was expected.
absl::StatusOr<TransformerWeights> LoadWeights(const WeightsRequest& request,
                                               Checkpoint* checkpoint, kernels::Backend* backend);

}  // namespace coppice::model
