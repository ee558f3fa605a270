// The forward pass of one rank's shard as a sequence of ops: KV commits, embedding, layers of
// attention and MLP, head. QKV and gate/up are column-parallel, output and down row-parallel (two
// all-reduces per layer), embedding and head vocabulary-parallel (docs/architecture.md 5). It
// only enqueues ops; it never waits for or reads a value. Backend::Submit takes it with each plan.
// Thread-compatible: the thread of the backend owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/shard_plan.h"
#include "model/weights.h"

namespace coppice::model {

// One rank's shard of a model (model/load_transformer.h).
struct TransformerParts {
  ModelConfig config;
  ShardPlan plan;
  TransformerWeights weights;
  // Type of KV, and of weights as the checkpoint has them.
  kernels::DType dtype = kernels::DType::kF32;
  kernels::DType weight_dtype = kernels::DType::kF32;  // type of matrices in memory
  std::string weight_types;        // the same for messages; formats of blocks that were kept
  uint64_t fingerprint = 0;        // of the model's files; equal on every rank
  int max_rows = 0;                // rows of a step, at most
  std::function<void()> on_layer;  // called after the ops of each layer; may be empty

  // The shape of this rank's KV pool.
  kernels::KvPoolShape kv_shape(int64_t blocks) const;
  size_t kv_block_bytes() const;  // all layers, K and V
};

class Transformer final : public kernels::Pass {
 public:
  // *pool has parts.kv_shape. *backend and *pool must outlive the decoder. ranks: of the replica.
  // ResourceExhausted when there is no memory for the activations.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(TransformerParts parts,
                                                             kernels::Backend* backend,
                                                             kernels::KvPool* pool, int ranks);

  const TransformerParts& parts() const { return parts_; }

  void Body(kernels::Ops* ops) override;
  void Head(kernels::Ops* ops) override;

 private:
  Transformer(TransformerParts parts, kernels::KvPool* pool, int ranks);
  absl::Status Allocate(kernels::Backend* backend);

  // attended = attention(norm(x)); without needs the last layer only stores its K and V.
  void Attend(kernels::Ops* ops, int layer);
  void Mlp(kernels::Ops* ops, const LayerWeights& w);
  // x += sum over ranks of input w^T + bias. With several ranks the sum goes to partial_ and the
  // next AddNorm adds it.
  void AddRowParallel(kernels::Ops* ops, const kernels::Weight& w, kernels::Tensor input);
  // x += addend; normed = norm(x).
  void AddNorm(kernels::Ops* ops, kernels::Tensor addend, const kernels::Weight& gain);

  const TransformerParts parts_;
  kernels::KvPool* const pool_;
  const int ranks_;
  std::shared_ptr<const kernels::RopeTable> rope_;
  // R = max_rows, d = hidden size, D = head_dim, q, kv, f, v, h = this rank's query heads, KV
  // heads, MLP columns, vocabulary rows, rows of the head.
  kernels::Tensor x_;       // [R, d] the residual stream
  kernels::Tensor normed_;  // [R, d]
  kernels::Tensor
      partial_;          // [R, d] this rank's term of a row-parallel product; empty with one rank
  kernels::Tensor qkv_;  // [R, (q + 2 kv) D]
  kernels::Tensor attended_;   // [R, q D]
  kernels::Tensor gate_up_;    // [R, 2 f]
  kernels::Tensor activated_;  // [R, f]
  kernels::Tensor kept_;       // [R, h] logits of a draft vocabulary; empty when it is whole
  kernels::Tensor logits_;     // [R, v]
};

}  // namespace coppice::model
