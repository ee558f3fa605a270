// Everything a process needs to run one model (shard): backend, weights, KV pool and its
// bookkeeping. Built once by the mains of the worker and the draft node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/step_clock.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/block_manager.h"
#include "model/transformer.h"

namespace coppice {

struct ModelHostOptions {
  std::string dir;
  std::string backend = "cpu";
  std::string dtype = "auto";
  int64_t kv_bytes = int64_t{1} << 30;  // of this rank
  int threads = 0;                      // 0 = all cores this process may use
  int max_rows = 512;
  int scratch_blocks = 4;
  std::function<void()> on_progress;  // called while weights are read; may be empty
};

struct ModelHost {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<BlockManager> blocks;  // its decisions count on rank 0 alone
  std::unique_ptr<StepClock> steps = std::make_unique<StepClock>();  // of who drives the model
};

// Collective over the communicator's ranks. Logs progress while loading. Errors name file, tensor
// and expectation, or the bytes that kv_bytes lacks.
absl::StatusOr<ModelHost> LoadModelHost(const ModelHostOptions& options,
                                        Communicator* communicator);

}  // namespace coppice
