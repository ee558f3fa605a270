// One rank's packed weights of the decoder, cut from the checkpoint by the shard plan. Loaded once,
// then immutable.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/checkpoint.h"
#include "model/markov_bias.h"
#include "model/model_config.h"
#include "model/shard_plan.h"

namespace coppice::model {

// D = head_dim, d = hidden_size, e = embedding_size, q, kv, f, v, h = this rank's query heads, KV
// heads, MLP columns, vocabulary rows, rows of the head (v, or fewer). Matrices hold their biases,
// gains theirs. Biases of row-parallel products (output, down) are on rank 0 only. What the family
// does not have is null.
struct LayerWeights {
  std::unique_ptr<kernels::Weight> attention_norm;      // gain [d]
  std::unique_ptr<kernels::Weight> attention_out_norm;  // gain [d]
  std::unique_ptr<kernels::Weight> state_norm;          // gain [d], of a state beside the embedding
  std::unique_ptr<kernels::Weight> q_norm, k_norm;      // gains [D]
  std::unique_ptr<kernels::Weight> qkv;                 // [(q + 2 kv) D, d], or 2 d with state_norm
  std::unique_ptr<kernels::Weight> output;              // [d, q D]
  std::unique_ptr<kernels::Weight> mlp_norm;            // gain [d]
  std::unique_ptr<kernels::Weight> mlp_out_norm;        // gain [d]
  std::unique_ptr<kernels::Weight> gate_up;             // [2 f, d], or up alone [f, d]
  std::unique_ptr<kernels::Weight> down;                // [d, f]
  // Instead of gate_up and down: g = this rank's columns of an expert.
  std::unique_ptr<kernels::Weight> router;                       // [experts, d]
  std::vector<std::unique_ptr<kernels::Weight>> expert_gate_up;  // [experts] of [2 g, d]
  std::vector<std::unique_ptr<kernels::Weight>> expert_down;     // [experts] of [d, g]

  // Bytes until K and V are stored, and after that.
  size_t bytes_before_attention() const;
  size_t bytes_after() const;
  // Of one expert, the largest.
  size_t bytes_of_expert() const;
};

struct TransformerWeights {
  std::unique_ptr<kernels::Weight> embedding;    // [v, e]
  std::unique_ptr<kernels::Weight> positions;    // [position_rows, d]
  std::unique_ptr<kernels::Weight> project_in;   // [d, e]
  std::unique_ptr<kernels::Weight> project_out;  // [e, d]
  std::unique_ptr<kernels::Weight> own_head;     // [h, e]; null when tied
  std::unique_ptr<kernels::Weight> scatter;      // from h to v logits; null when the head is whole
  std::vector<LayerWeights> layers;
  std::unique_ptr<kernels::Weight> final_norm;  // gain [d], times logit_scale
  std::unique_ptr<MarkovBias> markov;           // of a block drafter; on the host
  size_t bytes = 0;                             // bytes of all weights above

  const kernels::Weight& head() const { return own_head != nullptr ? *own_head : *embedding; }
};

// The type of embedding, head and QKV if the other matrices are stored as `dtype`: they are worth 8
// bits (docs/decisions.md, "4-bit weights").
inline kernels::DType FineDType(kernels::DType dtype) {
  return dtype == kernels::DType::kQ4_0 ? kernels::DType::kQ8_0 : dtype;
}

struct WeightsRequest {
  const ModelConfig* config = nullptr;
  ShardPlan plan;
  int rank = 0;
  kernels::DType dtype = kernels::DType::kF32;         // one that the backend stores
  kernels::DType router_dtype = kernels::DType::kF32;  // of routers, which stay as they are
  bool keeps_blocks = false;  // matrices in a block format stay in it, if the backend stores it
  std::function<void(double fraction)> progress;  // may be empty
};

// Packs one matrix at a time and releases its pages before the next, so peak memory is the packed
// weights plus one matrix. Errors name the file, the tensor and what was expected.
absl::StatusOr<TransformerWeights> LoadWeights(const WeightsRequest& request,
                                               Checkpoint* checkpoint, kernels::Backend* backend);

// The errors of LoadWeights about tensors: missing ones, shapes, types, gains and biases that are
// not finite. Packs nothing, and reads no value of a matrix.
absl::Status CheckTensors(const ModelConfig& config, Checkpoint* checkpoint);

}  // namespace coppice::model
