// Runs one model (shard), step by step: owner of its backend, weights, KV pool and its bookkeeping,
// threads, pending KV copies and step clock. The engine, the draft service, the laboratory and the
// rank loop are its clients:
//
//   StepBuilder step = runner->NewStep();
//   ... AddPrefixRows, AddNodeRow: rows, and what is needed of each ...
//   runner->Submit(std::move(step));
//   rows = runner->Wait();
//   ... decide from the rows; KV copies of what lives on go to runner->commits() ...
//
// Thread-compatible: one engine thread owns it, but for what is said of step_clock().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/host_threads.h"
#include "base/step_clock.h"
#include "base/step_plan.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/block_manager.h"
#include "model/decoder.h"
#include "model/step_builder.h"

namespace coppice::model {

struct ModelRunnerOptions {
  std::string dir;                      // Hugging Face folder
  std::string backend = "cpu";          // or "cuda"
  std::string dtype = "auto";           // of the weights: auto (the checkpoint's), f32, bf16
  int64_t kv_bytes = int64_t{1} << 30;  // of the KV pool of this rank
  int threads = 0;                      // 0 = all cores this process may use
  int max_rows = 512;                   // of one step
  int scratch_blocks = 4;               // BlockManagerOptions
  bool always_list = false;             // BackendOptions
  std::function<void()> on_progress;    // called while weights are read; may be empty
};

// Where the leader's plans go before it runs them itself.
class PlanSender {
 public:
  virtual ~PlanSender() = default;
  virtual absl::Status Send(const StepPlan& plan) = 0;
};

class ModelRunner {
 public:
  // Collective over the communicator's ranks. Logs progress while loading. Errors name file, tensor
  // and expectation, or the bytes that kv_bytes lacks. *communicator must outlive the runner.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Load(const ModelRunnerOptions& options,
                                                           comm::Communicator* communicator);
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  const ModelConfig& config() const { return decoder_->parts().config; }
  int vocab_size() const { return config().vocab_size; }
  kernels::DType dtype() const { return decoder_->parts().dtype; }
  uint64_t fingerprint() const { return decoder_->parts().fingerprint; }
  int max_rows() const { return decoder_->parts().max_rows; }
  std::string backend_description() const { return backend_->description(); }
  bool batch_invariant() const { return backend_->batch_invariant(); }

  // Its decisions count on rank 0 alone.
  BlockManager* blocks() { return blocks_.get(); }
  const BlockManager* blocks() const { return blocks_.get(); }
  // For the work of the host between two steps.
  HostThreads* threads() { return &threads_; }
  // How long the thread that drives the runner has shown no progress. Moved on by that thread, read by
  // any other.
  StepClock* step_clock() { return &step_clock_; }
  // KV copies to do before the next step, in the order of the verdicts.
  std::vector<KvCopy>* commits() { return &commits_; }

  // ---- rank 0
  // With followers: every plan goes to them first. Must outlive the runner.
  void SendPlansTo(PlanSender* followers) { followers_ = followers; }
  // The next step, empty. What was freed since the step before may be handed out from now on.
  StepBuilder NewStep();
  // Starts the step. The host may do other work until Wait.
  absl::Status Submit(StepBuilder step);
  // Until nothing but the head of the step is left to compute.
  void WaitForHead();
  // Until the step has run: what the plan needs of the rows, in the order of the needs, valid until
  // the next Submit.
  absl::StatusOr<const kernels::StepRows*> Wait();

  // ---- the other ranks
  // Runs the leader's next plan, already numbered. InvalidArgument names what is wrong with it;
  // FailedPrecondition: it is not the next. The replica must end after an error.
  absl::Status Follow(StepPlan plan);

  uint64_t steps() const { return step_; }  // submitted

 private:
  ModelRunner(const ModelRunnerOptions& options, int threads)
      : options_(options), threads_(threads) {}
  absl::Status Init(comm::Communicator* communicator);
  absl::Status Start(StepPlan plan);
  absl::StatusOr<const kernels::StepRows*> FetchIncomplete(const kernels::StepRows* rows);

  const ModelRunnerOptions options_;
  ThreadTeam threads_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::KvPool> pool_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<BlockManager> blocks_;
  StepClock step_clock_;
  std::vector<KvCopy> commits_;
  PlanSender* followers_ = nullptr;
  StepPlan plan_;   // under way; after Wait the last one
  StepPlan fetch_;  // a follow-up of plan_
  uint64_t step_ = 0;
};

}  // namespace coppice::model
