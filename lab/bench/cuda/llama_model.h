// A decoder of llama_shape.h over the CUDA backend, as it serves. Its weights are made on the
// device; one matrix is packed by the backend, which takes from it the type of all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/llama_shape.h"
#include "model/transformer.h"

namespace coppice::bench {

inline constexpr int kMaxPositions = 16384;

struct LlamaOptions {
  int max_rows = 0;              // of a step
  int64_t blocks = 0;            // of the pool
  bool filled = false;           // weights and pool are random; else their memory is as it comes
  bool overlap_launches = true;  // BackendOptions
  bool exact = false;            // BackendOptions
  std::string tuning_cache;      // BackendOptions; "": nothing is tuned
  ModelShape shape = kTarget;
  bool keeps_states = false;  // joins kStateLayers to states of its own size for a head
};

class LlamaModel {
 public:
  // *stream must outlive the model.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Create(const LlamaOptions& options,
                                                            kernels::cuda::DeviceStream* stream);
  kernels::Backend* backend() { return backend_.get(); }
  // Runs the same decoder without graphs: one device holds all.
  kernels::Backend* op_by_op() { return op_by_op_.get(); }
  model::Transformer* decoder() { return decoder_.get(); }
  const kernels::KvPool& pool() const { return *pool_; }
  const ModelShape& shape() const { return options_.shape; }

 private:
  LlamaModel(const LlamaOptions& options, kernels::cuda::DeviceStream* stream)
      : options_(options), stream_(stream) {}
  absl::Status Make();
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(int64_t rows, int64_t columns);
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Gain();

  const LlamaOptions options_;
  kernels::cuda::DeviceStream* const stream_;
  ThreadTeam threads_{1};
  std::unique_ptr<comm::Communicator> one_rank_ = comm::MakeSingleCommunicator();
  uint64_t seed_ = 0;
  std::unique_ptr<kernels::Backend> backend_, op_by_op_;
  std::unique_ptr<kernels::KvPool> pool_;
  std::unique_ptr<model::Transformer> decoder_;
};

}  // namespace coppice::bench
