// A model whose passes are timed: sequences with a given context, and rows after them that may be
// computed again and again. Thread-compatible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "lab/bench/model/limits.h"
#include "model/model_runner.h"

namespace coppice::bench {

struct RunnerChoice {
  std::string dir;
  std::string type = "bf16";  // type of weights: f32, bf16, int8 or int4
  std::string kernels = "best";
  int threads = 1;
  int64_t kv_tokens = 0;   // tokens that the KV pool must hold
  std::string states_for;  // ModelRunnerOptions
};

class TimedRunner {
 public:
  static absl::StatusOr<std::unique_ptr<TimedRunner>> Load(const RunnerChoice& choice);
  ~TimedRunner();

  // One pass after another over new tokens, `chunk` at a time.
  struct Context {
    model::SequenceHandle sequence = -1;
    std::vector<model::KvNode> nodes;
    std::vector<TokenId> tokens;  // tokens of the nodes
  };
  // A sequence with a prefix of that many tokens. The first `common` are those of all sequences
  // that are opened so, the others are in no other sequence.
  absl::StatusOr<Context> Open(int tokens, int chunk, int common = 0);
  // Nodes after its prefix: `beams` binary trees, as equal as possible.
  absl::Status Grow(int nodes, int beams, Context* context);
  // A pass over all nodes of the contexts; their logits are needed whole.
  absl::Status Pass(const std::vector<Context>& contexts);
  void Close(const Context& context);

  model::ModelRunner* runner() { return runner_.get(); }
  ThreadTeam* team() { return &team_; }  // for limits, which use as many threads
  double load_s() const { return load_s_; }
  ResidentMemory memory() const { return memory_; }  // after loading, with the peak of loading

 private:
  explicit TimedRunner(int threads) : team_(threads) {}

  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  ThreadTeam team_;
  std::unique_ptr<model::ModelRunner> runner_;
  double load_s_ = 0;
  ResidentMemory memory_;
  uint64_t next_token_ = 0;
};

}  // namespace coppice::bench
