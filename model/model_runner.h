// Runs one model (or this rank's shard of it) step by step. It owns the backend, the weights, the
// KV pool with its bookkeeping, the threads, the pending KV copies and the progress watchdog. The
// engine, the draft service, the laboratory and the rank loop use it like this:
//
//   StepBuilder step = runner->NewStep();
//   ... AddPrefixRows, AddNodeRow: rows, and what the decisions need of each ...
//   runner->Submit(std::move(step));
//   rows = runner->Wait();
//   ... decide from the rows; append the KV copies for the next step to runner->commits() ...
//
// Thread-compatible: one engine thread owns it. Any thread may read progress_watchdog().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/host_threads.h"
#include "base/progress_watchdog.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/kv/block_manager.h"
#include "model/kv/step_builder.h"
#include "model/kv_layout.h"
#include "model/memory_traffic.h"
#include "model/transformer.h"
#include "plan/page_map.h"
#include "plan/plan_check.h"
#include "plan/step_limits.h"
#include "plan/step_plan.h"

namespace coppice::model {

struct ModelRunnerOptions {
  std::string dir;  // Hugging Face folder or GGUF file
  // For a draft that takes the states of its target, and may have no embedding of its own: the
  // target's folder or file.
  std::string target;
  // Folder of a draft that takes this model's states: they are joined by its first matrix and kept
  // with KV, 2 bytes for each unit of the draft's hidden size and token. "": none are. Rank 0 alone
  // reads it. Layers with windows then keep K and V of all tokens.
  std::string states_for;
  std::string backend = "cpu";  // "cpu" or "cuda"
  // Precision of the weights and of the KV: auto (that of the checkpoint; F16 becomes F32 where the
  // backend does not store it), f32, bf16 or f16. bf16 halves what an F32 checkpoint takes in
  // memory, and rounds its weights.
  std::string dtype = "auto";
  std::string weight_dtype = "auto";  // LoadOptions
  std::string kv_dtype = "auto";      // LoadOptions
  // Size of this rank's KV pool. 0: on a device, the memory that is free beside the weights, less a
  // tenth of its memory; on a host 1 GiB. A host commits the memory as blocks are used. Raise it
  // when requests wait for KV or are refused with kv_capacity_exceeded.
  int64_t kv_bytes = 0;
  // Share of a device's memory that this process may take in all, where others use the same device.
  double gpu_memory = 1;
  // Threads that compute. 0: one per core that this process may use. Set it when several processes
  // share a machine.
  int threads = 0;
  // Rows of one step at most. It bounds the prefill chunk and the forests of a step, and sizes the
  // activations.
  int max_rows = kDefaultMaxRows;
  int scratch_blocks = kDefaultScratchBlocks;  // BlockManagerOptions
  bool free_windows = true;                    // KvLayoutOf; false for tests and benchmarks
  bool always_list = false;                    // BackendOptions
  bool graphs = true;                          // BackendOptions
  std::string kernels = "best";                // BackendOptions::cpu_kernels
  bool exact = false;                          // BackendOptions
  bool overlap_launches = true;                // BackendOptions
  // Where the backend can, it chooses the levels of draft forests.
  bool device_forests = true;
  std::string tuning_cache;                // BackendOptions
  kernels::CollectiveOptions collectives;  // BackendOptions
  // Called while weights are read and products are tuned. May be empty.
  std::function<void()> on_progress;
};

// Takes the leader's plans before the leader runs them itself.
class PlanSender {
 public:
  virtual ~PlanSender() = default;
  virtual absl::Status Send(const StepPlan& plan) = 0;
};

class ModelRunner {
 public:
  // Collective over the communicator's ranks. Logs progress while loading. Errors name the file,
  // the tensor and what was expected, or say how many KV blocks are needed and how many kv_bytes
  // gives, or how much memory the model needs and how much is free. *communicator must outlive the
  // runner.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Load(const ModelRunnerOptions& options,
                                                           comm::Communicator* communicator);
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  const ModelConfig& config() const { return transformer_->parts().config; }
  int vocab_size() const { return config().vocab_size; }
  kernels::DType dtype() const { return transformer_->parts().dtype; }
  kernels::DType kv_dtype() const { return transformer_->parts().kv_dtype; }
  // The bias of a block drafter; nullptr: it has none.
  const MarkovBias* markov() const { return transformer_->parts().weights.markov.get(); }
  uint64_t fingerprint() const { return transformer_->parts().fingerprint; }
  int max_rows() const { return transformer_->parts().max_rows; }
  std::string backend_description() const { return backend_->description(); }
  std::string pci_bus_id() const { return backend_->pci_bus_id(); }
  bool batch_invariant() const { return backend_->batch_invariant(); }
  // The known time of a step before any has run; may be empty.
  std::vector<kernels::RowCost> row_costs() const { return backend_->RowCosts(); }

  // Used on rank 0 only: the other ranks follow its plans.
  BlockManager* blocks() { return blocks_.get(); }
  const BlockManager* blocks() const { return blocks_.get(); }
  const KvLayout& kv_layout() const { return kv_layout_; }
  // Which pages the blocks of the last plan have.
  const PageMap& page_map() const { return *page_map_; }
  // For tests.
  kernels::KvPool* kv_pool() { return pool_.get(); }
  // For host work between two steps.
  HostThreads* threads() { return &threads_; }
  // How long ago the thread that drives the runner last made progress. Set by that thread; any
  // thread may read it.
  ProgressWatchdog* progress_watchdog() { return &progress_watchdog_; }
  // KV copies that the next step does first: those of verdicts, and those of beginnings of cached
  // blocks.
  std::vector<KvCopy>* commits() { return &commits_; }

  // ---- rank 0
  // Sends every plan to the followers first. *followers must outlive the runner.
  void SendPlansTo(PlanSender* followers) { followers_ = followers; }
  // An empty next step. KV slots freed since the previous step may be handed out again.
  StepBuilder NewStep();
  // Starts the step. The host may do other work until Wait.
  absl::Status Submit(StepBuilder step);
  // Blocks until only the head of the step is left to compute.
  void WaitForHead();
  // Blocks until the step has run. Returns what the plan needs of the rows, in the order of the
  // needs, valid until the next Submit.
  absl::StatusOr<const kernels::StepRows*> Wait();
  // Columns of the states that the KV pool keeps (KvPoolShape::state_columns); 0: none.
  int state_columns() const { return pool_->shape.state_columns; }
  // Copies the states of these slots, as BlockManager numbers them now: copies that the next step
  // will do count as done. out [slots, state_columns] bf16. Not between Submit and Wait.
  absl::Status ReadStates(absl::Span<const int32_t> slots, uint16_t* out);
  // Whether the backend can choose the levels of the forest itself, if its rows have this need.
  bool GrowsForest(const ForestPlan::Forest& forest, const RowNeed& need) const {
    return options_.device_forests && backend_->GrowsForest(forest, need, vocab_size());
  }
  // Starts all forward passes of the forests, one plan for each level, with the commits of each.
  absl::Status SubmitForests(ForestPlan plan);
  // Blocks until they have run.
  absl::StatusOr<std::vector<GrownForest>> WaitForests();

  // ---- the other ranks
  // Runs the leader's next plan, whose number must be the next. InvalidArgument names a fault of
  // the plan. FailedPrecondition: the number is not the next. After an error the replica must end.
  absl::Status Follow(StepPlan plan);

  uint64_t steps() const { return step_; }  // number of submitted steps
  // What their forward passes had to read, on all ranks.
  const MemoryTraffic& reads() const { return reads_->total(); }
  uint64_t collective_bytes() const { return backend_->collective_bytes(); }

 private:
  ModelRunner(const ModelRunnerOptions& options, int threads)
      : options_(options), threads_(threads) {}
  absl::Status Init(comm::Communicator* communicator);
  KvLayout LayoutOf(const TransformerParts& parts) const;
  absl::StatusOr<int64_t> KvBytes(const TransformerParts& parts) const;
  void LogReady(double seconds, const std::string& pool_tokens) const;
  PlanLimits Limits(int needs_before) const;
  absl::Status Start(StepPlan plan);
  absl::StatusOr<const kernels::StepRows*> FetchIncomplete(const kernels::StepRows* rows);

  const ModelRunnerOptions options_;
  ThreadTeam threads_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::KvPool> pool_;
  std::unique_ptr<Transformer> transformer_;
  KvLayout kv_layout_;
  std::unique_ptr<BlockManager> blocks_;
  std::unique_ptr<PageMap> page_map_;
  std::unique_ptr<ReadCounter> reads_;
  ProgressWatchdog progress_watchdog_;
  std::vector<KvCopy> commits_;
  PlanSender* followers_ = nullptr;
  StepPlan plan_;   // of the current step; after Wait, of the last one
  StepPlan fetch_;  // a follow-up of plan_
  ForestPlan forests_;
  uint64_t step_ = 0;
};

}  // namespace coppice::model
