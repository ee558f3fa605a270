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

namespace coppice {

// D = head_dim, d = hidden_size, q, kv, f, v = this rank's query heads, KV heads, MLP columns,
// vocabulary rows. Bias vectors are empty when the model has none; those of row-parallel products
// live on rank 0 alone.
struct LayerWeights {
  std::vector<float> attention_norm;      // [d]
  std::unique_ptr<PackedMatrix> qkv;      // [(q + 2 kv) D, d]
  std::vector<float> qkv_bias;            // [(q + 2 kv) D]
  std::unique_ptr<PackedMatrix> output;   // [d, q D]
  std::vector<float> output_bias;         // [d]
  std::vector<float> mlp_norm;            // [d]
  std::unique_ptr<PackedMatrix> gate_up;  // [2 f, d]
  std::vector<float> gate_up_bias;        // [2 f]
  std::unique_ptr<PackedMatrix> down;     // [d, f]
  std::vector<float> down_bias;           // [d]
};

struct DecoderWeights {
  std::unique_ptr<PackedMatrix> embedding;  // [v, d]
  std::unique_ptr<PackedMatrix> own_head;   // [v, d]; null when tied
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [d]
  size_t bytes = 0;               // of all of the above

  const PackedMatrix& head() const { return own_head != nullptr ? *own_head : *embedding; }
};

struct WeightsRequest {
  const ModelConfig* config = nullptr;
  ShardPlan plan;
  int rank = 0;
  DType dtype = DType::kF32;                      // f32 or bf16
  std::function<void(double fraction)> progress;  // may be empty
};

// Packs matrix by matrix and gives each one's pages back before the next, so that memory peaks at
// the packed weights plus one matrix. Errors name file, tensor and expectation.
absl::StatusOr<DecoderWeights> LoadWeights(const WeightsRequest& request, Checkpoint* checkpoint,
                                           Backend* backend);

}  // namespace coppice
