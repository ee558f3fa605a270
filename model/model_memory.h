// The memory that one rank of a model needs, known before anything is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/shard_plan.h"
#include "model/state_fusion.h"

namespace coppice::model {

// Bytes.
struct ModelMemory {
  int64_t weights = 0;
  int64_t activations = 0;  // the tensors of a step, and the rotary table
};

// weights: type of the matrices; activations: of the tensors between ops (Backend). A backend may
// need some more, for padding and for its own buffers.
ModelMemory PredictMemory(const ModelConfig& config, const ShardPlan& plan, kernels::DType weights,
                          kernels::DType activations, int max_rows, int ranks);

// The same of what joins states for a draft, with matrices of this type.
ModelMemory PredictMemory(const StateFusion& fusion, kernels::DType matrices,
                          kernels::DType activations, int max_rows);

// ResourceExhausted when the model and a KV pool of kv_bytes need more than the backend has free.
// The message has the figures and possible remedies. `dir` names the model.
absl::Status CheckFits(const std::string& dir, const ModelMemory& model, int64_t kv_bytes,
                       kernels::DType dtype, const kernels::MemoryFacts& memory);

// The memory of a device as it is for a process that may use this share of it and has used `used`
// bytes of that: others have the rest, also where they have not taken it yet. Host memory is as it
// was.
kernels::MemoryFacts ShareOf(const kernels::MemoryFacts& memory, double share, int64_t used);

// Size of the KV pool if none was requested: on a device, the memory that is free beside the
// activations, less a tenth of the device's memory; 1 GiB on a host, whose memory others share.
// free: after the weights have been loaded.
int64_t DefaultKvBytes(const ModelMemory& model, const kernels::MemoryFacts& memory);

}  // namespace coppice::model
