// The sharded decoder: one rank's weights and its forward pass over a ForwardBatch. Column-parallel
// QKV and gate/up, row-parallel output and down (two all-reduces a layer), vocabulary-parallel
// embedding and head (docs/architecture.md 5). Thread-compatible: the engine thread of the rank
// owns it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/forward_batch.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/model_config.h"

namespace coppice {

struct LoadOptions {
  std::string dir;             // Hugging Face folder
  std::string dtype = "auto";  // auto (the checkpoint's; F16 becomes F32), f32, bf16
  int max_rows = 512;          // largest batch
  std::function<void(double fraction)> progress;  // 0..1, may be empty
};

class Transformer {
 public:
  // Memory-maps the checkpoint and packs this rank's shard. Errors name file, tensor and
  // expectation.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(const LoadOptions& options,
                                                           Backend* backend,
                                                           Communicator* communicator);
  virtual ~Transformer() = default;
  virtual const ModelConfig& config() const = 0;
  virtual DType dtype() const = 0;
  virtual uint64_t fingerprint()
      const = 0;  // of config and weight headers and sampled contents; equal on every rank
  virtual size_t weight_bytes() const = 0;  // of this rank
  virtual KvPoolShape kv_shape(int64_t blocks)
      const = 0;  // of this rank (heads sharded); KV dtype = f32 or bf16 as the weights
  virtual size_t kv_block_bytes() const = 0;  // of this rank, all layers, K and V

  // Runs batch.commits, then the pass; writes K and V of every row. logits: [logits_rows, vocab]
  // f32 on rank 0, empty on other ranks. Valid until the next call.
  absl::StatusOr<absl::Span<const float>> Forward(const ForwardBatch& batch, KvPool* pool) {
    return Forward(batch, pool, [] {});
  }
  // Calls before_head, if any row wants logits, when nothing but the head is left to compute.
  virtual absl::StatusOr<absl::Span<const float>> Forward(
      const ForwardBatch& batch, KvPool* pool, absl::FunctionRef<void()> before_head) = 0;
};

}  // namespace coppice
