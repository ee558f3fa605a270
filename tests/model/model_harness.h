// A loaded decoder with its backend and KV pool, and hand-made plans for one sequence. Prefix rows
// are in blocks 1, 2, ..., forest rows in scratch slots after them. Shared by the tests of the
// forward pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "model/load_transformer.h"
#include "model/transformer.h"
#include "plan/step_plan.h"

namespace coppice::model {

struct LoadedModel {
  std::unique_ptr<comm::Communicator> single;  // used if no communicator was given
  std::unique_ptr<ThreadTeam> threads;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::KvPool> pool;
  std::unique_ptr<Transformer> decoder;

  const TransformerParts& parts() const { return decoder->parts(); }
  // Returns a copy of the whole rows that the plan needs, concatenated; empty on ranks other than
  // 0.
  absl::StatusOr<std::vector<float>> Run(const StepPlan& plan);
};

inline constexpr int kTestBlocks = 40;  // of the pool, including the sink

// communicator: nullptr means one rank. Otherwise *communicator must outlive the result. kind: that
// of the backend.
absl::StatusOr<LoadedModel> LoadForTest(const LoadOptions& options,
                                        comm::Communicator* communicator = nullptr, int threads = 1,
                                        const std::string& kind = "cpu");

struct ForestNode {
  int parent = -1;  // index of an earlier node; -1 = the end of the prefix
  TokenId token = 0;
};

class PlanSketch {
 public:
  // One block table for `capacity` tokens. Scratch slots follow it.
  explicit PlanSketch(int capacity);
  // Adds tokens [begin, end) of the sequence as prefix rows. The last `logits` rows need logits.
  PlanSketch& Prefix(const std::vector<TokenId>& tokens, int begin, int end, int logits);
  // Adds a forest after a prefix of `prefix` tokens. Every node needs logits. Node i is in scratch
  // slot i.
  PlanSketch& Forest(int prefix, const std::vector<ForestNode>& nodes);
  int32_t prefix_slot(int position) const { return kBlockSize + position; }
  int32_t scratch_slot(int node) const { return (1 + blocks_) * kBlockSize + node; }
  StepPlan plan;

 private:
  void AddRow(TokenId token, int position, int32_t slot, bool logits);

  int blocks_;
};

// max |a - b| / max |b|.
double RelativeError(const std::vector<float>& a, const std::vector<double>& b);

}  // namespace coppice::model
