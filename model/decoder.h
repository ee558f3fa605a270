// The forward pass of one rank's shard: embedding, layers of attention and MLP, head (Transformer
// of model/transformer.h, which makes it). Thread-compatible: the engine thread of the rank owns
// it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/shard_plan.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace coppice {

struct DecoderParts {
  ModelConfig config;
  ShardPlan plan;
  DecoderWeights weights;
  DType dtype = DType::kF32;
  uint64_t fingerprint = 0;
  int max_rows = 0;
  std::function<void()> on_layer;  // after each layer of a pass, may be empty
};

class Decoder : public Transformer {
 public:
  // *backend and *communicator must outlive the decoder.
  Decoder(DecoderParts parts, Backend* backend, Communicator* communicator);

  const ModelConfig& config() const override { return parts_.config; }
  DType dtype() const override { return parts_.dtype; }
  uint64_t fingerprint() const override { return parts_.fingerprint; }
  size_t weight_bytes() const override { return parts_.weights.bytes; }
  KvPoolShape kv_shape(int64_t blocks) const override;
  size_t kv_block_bytes() const override;
  // InvalidArgument for a batch that breaks its contract or exceeds max_rows (model/batch_check.h).
  using Transformer::Forward;
  absl::StatusOr<absl::Span<const float>> Forward(const ForwardBatch& batch, KvPool* pool,
                                                  absl::FunctionRef<void()> before_head) override;

 private:
  // Uninitialised, so that rows never used cost no memory.
  using Buffer = std::unique_ptr<float[]>;

  absl::Status Embed(const ForwardBatch& batch);
  // x += attention(norm(x)). The last layer keeps only the rows that want logits; returns the rows
  // left.
  absl::StatusOr<int64_t> Attend(const ForwardBatch& batch, int layer, KvPool* pool);
  absl::Status Mlp(const LayerWeights& layer, int64_t rows);
  // x[rows, d] += sum over ranks of input w^T + bias.
  absl::Status AddRowParallel(const PackedMatrix& w, const float* input,
                              absl::Span<const float> bias, int64_t rows);
  void KeepLogitsRows(const std::vector<int32_t>& wanted, int64_t width, float* values) const;
  absl::StatusOr<absl::Span<const float>> Head(int64_t rows);
  void ArrangeGathered(int64_t rows);

  const DecoderParts parts_;
  Backend* const backend_;
  Communicator* const communicator_;
  std::shared_ptr<const RopeTable> rope_;
  int64_t d_ = 0;  // hidden size
  // R = max_rows, D = head_dim, q, kv, f = this rank's query heads, KV heads, MLP columns.
  Buffer x_;          // [R, d] the residual stream
  Buffer normed_;     // [R, d]
  Buffer partial_;    // [R, d] this rank's term of a row-parallel product
  Buffer qkv_;        // [R, (q + 2 kv) D]
  Buffer attended_;   // [R, q D]
  Buffer gate_up_;    // [R, 2 f]
  Buffer activated_;  // [R, f]
  Buffer
      piece_;  // [R, largest vocabulary shard] this rank's logits, dense at its own shard's width
  Buffer gathered_;  // [ranks, R, largest vocabulary shard], rank 0 of several
  Buffer logits_;    // [R, vocab], rank 0 of several
};

}  // namespace coppice
