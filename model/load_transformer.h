// Reads a Hugging Face folder or a GGUF file into the parts of a decoder: configuration, this rank's shard and its
// packed weights. Called once when a model starts (model/model_runner.h).
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/model_memory.h"
#include "model/transformer.h"
#include "plan/step_limits.h"

namespace coppice::model {

struct LoadOptions {
  std::string dir;             // Hugging Face folder or GGUF file
  std::string target;          // of a draft that takes states (ModelRunnerOptions)
  std::string dtype = "auto";  // type of weights and KV: auto (the checkpoint's), f32, bf16, f16
  // Type of the matrices: auto (as dtype), int8, int4. If the backend lacks it: auto and a warning.
  std::string weight_dtype = "auto";
  std::string kv_dtype = "auto";   // type of KV: auto (as dtype), int8
  std::string states_for;          // ModelRunnerOptions; of rank 0 alone
  int max_rows = kDefaultMaxRows;  // rows of a step, at most
  int64_t kv_bytes = 0;            // bytes of the KV pool that must fit beside the weights
  double gpu_memory = 1;           // share of the device's memory in which all must fit
  std::function<void(double fraction)> progress;  // 0..1, may be empty
  std::function<void()> on_layer;                 // as in TransformerParts
};

// Memory-maps the checkpoint and packs this rank's shard. Collective: succeeds on all ranks, and
// only when all loaded the same checkpoint. Errors name the file, the tensor and what was expected.
// ResourceExhausted before anything is loaded when this rank lacks the memory.
absl::StatusOr<TransformerParts> LoadTransformer(const LoadOptions& options,
                                                 kernels::Backend* backend,
                                                 comm::Communicator* communicator);

// What LoadTransformer would make of a model, from its headers alone: of rank 0.
struct LoadEstimate {
  ModelConfig config;
  ModelMemory memory;
  std::string weight_types;    // of the matrices in memory
  int64_t kv_token_bytes = 0;  // K and V of a token, and its state
  kernels::DType kv_dtype = kernels::DType::kF32;
  KvLayout kv_layout;
  TargetStates states;    // what the draft of LoadOptions::states_for takes
  int state_columns = 0;  // of a state that is kept; 0: none
};
absl::StatusOr<LoadEstimate> EstimateLoad(const LoadOptions& options,
                                          const kernels::Backend& backend, int ranks);

}  // namespace coppice::model
