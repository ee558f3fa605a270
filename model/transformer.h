// The forward pass of one rank's shard as a sequence of ops: KV commits, embedding, layers of
// attention and MLP, head. QKV and gate/up are column-parallel, output and down row-parallel (two
// all-reduces per layer), embedding and head vocabulary-parallel (docs/architecture.md 5). It
// only enqueues ops; it never waits for or reads a value. Backend::Submit takes it with each plan.
// Thread-compatible: the thread of the backend owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/kv_layout.h"
#include "model/model_config.h"
#include "model/model_memory.h"
#include "model/shard_plan.h"
#include "model/state_fusion.h"
#include "model/weights.h"

namespace coppice::model {

// One rank's shard of a model (model/load_transformer.h).
struct TransformerParts {
  ModelConfig config;
  ShardPlan plan;
  TransformerWeights weights;
  StateFusion fusion;                           // on rank 0, if the model keeps states for a draft
  bool keeps_states = false;                    // whether rank 0 has one
  kernels::DType dtype = kernels::DType::kF32;  // of weights as the checkpoint has them
  kernels::DType kv_dtype = kernels::DType::kF32;
  kernels::DType weight_dtype = kernels::DType::kF32;  // type of matrices in memory
  std::string weight_types;        // the same for messages; formats of blocks that were kept
  uint64_t fingerprint = 0;        // of the model's files; equal on every rank
  ModelMemory memory;              // what was predicted before it was loaded
  int max_rows = 0;                // rows of a step, at most
  std::function<void()> on_layer;  // called after the ops of each layer; may be empty

  // The shape of this rank's KV pool.
  kernels::KvPoolShape kv_shape(int64_t blocks) const;
  // The same with pages.
  kernels::KvPoolShape kv_shape(int64_t pages, const KvLayout& layout) const;
  int state_columns() const;      // of the KV pool
  size_t kv_layer_bytes() const;  // K and V of a token in one layer
  size_t kv_block_bytes() const;  // all layers, K and V, and the states
  size_t kv_page_bytes(const KvLayout& layout) const;
};

class Transformer final : public kernels::Pass {
 public:
  // *pool has parts.kv_shape. *backend and *pool must outlive the transformer. ranks: of the replica.
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
  absl::Status AllocateStates(kernels::Backend* backend);

  // x = embedding of the rows' tokens and positions.
  void Embed(kernels::Ops* ops);
  // x = the states of the rows; pair = norm(embedding), norm(x).
  void JoinStates(kernels::Ops* ops);
  // attended = attention(norm(x)); without needs the last layer only stores its K and V.
  void Attend(kernels::Ops* ops, int layer);
  // qkv = that of the input, rotated; its K and V go to the pool.
  void StoreKv(kernels::Ops* ops, int layer, kernels::Tensor input);
  // K and V of rows are made of states of the target, except for rows of blocks.
  bool MakesContext() const { return parts_.config.states.use == TargetStates::Use::kContext; }
  // All rows have states, and K and V are all that is made of them.
  void StoreContext(kernels::Ops* ops);
  void Mlp(kernels::Ops* ops, const LayerWeights& w);
  // Adds x, the output of `layer`, to the states; after the last layer that they take, the pool
  // keeps them.
  void TakeState(kernels::Ops* ops, int layer);
  // x += sum over ranks of input w^T + bias, or the sum goes to partial_ and the next Enter adds it
  // (ModelConfig::adds_apart).
  void AddRowParallel(kernels::Ops* ops, const kernels::Weight& w, kernels::Tensor input);
  // x += what AddRowParallel left of a product whose norm is out_norm; x = after_sum(x); normed =
  // norm(x). A norm without a gain is none.
  void Enter(kernels::Ops* ops, const kernels::Weight* out_norm, const kernels::Weight* after_sum,
             const kernels::Weight* norm);
  kernels::Norm NormOf(const kernels::Weight* gain) const;

  const TransformerParts parts_;
  kernels::KvPool* const pool_;
  const int ranks_;
  const bool adds_apart_;
  std::vector<std::shared_ptr<const kernels::RopeTable>> ropes_;
  // R = max_rows, d = hidden size, e = embedding size, D = head_dim, q, kv, f, v, h = this rank's
  // query heads, KV heads, MLP columns, vocabulary rows, rows of the head.
  // [R, e] the embedding before its projection, or beside a state; empty: it is x
  kernels::Tensor embedded_;
  kernels::Tensor narrow_;     // [R, e] what is projected from or to; may be empty
  kernels::Tensor pair_;       // [R, 2 d] embedding and state, normed; empty: rows take no states
  kernels::Tensor x_;          // [R, d] the residual stream
  kernels::Tensor normed_;     // [R, d]
  kernels::Tensor beside_;     // [R, d] the MLP's norm beside that of attention; may be empty
  kernels::Tensor partial_;    // [R, d] what AddRowParallel leaves to Enter; may be empty
  kernels::Tensor qkv_;        // [R, (q + 2 kv) D]
  kernels::Tensor attended_;   // [R, q D]
  kernels::Tensor gate_up_;    // [R, 2 f], or [R, f] without a gate
  kernels::Tensor activated_;  // [R, f]
  kernels::Tensor kept_;       // [R, h] logits of a draft vocabulary; empty when it is whole
  kernels::Tensor logits_;     // [R, v]
  // Empty unless the model keeps states: n layers, H columns.
  kernels::Tensor states_;  // [R, H]
  std::vector<kernels::Tensor>
      together_;           // [n] of [R, (i + 1) d]: the outputs so far, with `whole`
  kernels::Tensor whole_;  // [R, n d] all of them, normed
};

}  // namespace coppice::model
