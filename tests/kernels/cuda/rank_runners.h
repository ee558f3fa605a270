// The ranks of a replica as threads of this process, each with a model runner. What the leader's body
// does, the others follow, as in a replica. On any device, or on simulated ones.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/model_runner.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::model {

// Plans, one queue for each follower.
class PlanQueues : public PlanSender {
 public:
  explicit PlanQueues(int ranks) : queues_(ranks) {}
  absl::Status Send(const StepPlan& plan) override {
    Put(plan);
    return absl::OkStatus();
  }
  void Stop() { Put(std::nullopt); }
  std::optional<StepPlan> Take(int rank) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !queues_[rank].empty(); });
    std::optional<StepPlan> plan = std::move(queues_[rank].front());
    queues_[rank].pop_front();
    return plan;
  }

 private:
  void Put(const std::optional<StepPlan>& plan) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& queue : queues_) queue.push_back(plan);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::optional<StepPlan>>> queues_;
};

// What greedy decoding has chosen, and the rows of the chosen tokens and of a sibling each.
struct Greedy {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> rows;
};

// Each step asks for the likeliest token's row and for that of the second likeliest, its sibling; the
// first of them moves to the prefix.
inline absl::Status DecodeGreedily(ModelRunner* runner, const std::vector<TokenId>& prompt,
                                   int count, Greedy* greedy) {
  BlockManager* blocks = runner->blocks();
  int cached = 0;
  const SequenceHandle sequence = blocks->Open(prompt, &cached);
  StepBuilder prefill = runner->NewStep();
  const std::vector<TokenId> begin(prompt.begin() + cached, prompt.end() - 1);
  COPPICE_ASSIGN_OR_RETURN(const auto slots, blocks->AppendPrefix(sequence, begin));
  prefill.AddPrefixRows(sequence, begin, slots);
  COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(prefill)));
  COPPICE_RETURN_IF_ERROR(runner->Wait().status());
  TokenId token = prompt.back(), other = 7;
  for (int i = 0; i < count; ++i) {
    StepBuilder step = runner->NewStep();
    std::vector<KvNode> nodes;
    std::vector<int> needs;
    for (const TokenId of : {token, other}) {
      COPPICE_ASSIGN_OR_RETURN(const KvNode node, blocks->AddNode(sequence, kPrefixEnd, of));
      nodes.push_back(node);
      needs.push_back(step.AddNodeRow(sequence, node, of, RowNeed()));
    }
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    runner->WaitForHead();
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, runner->Wait());
    for (const int need : needs)
      greedy->rows.emplace_back(rows->Whole(need).begin(), rows->Whole(need).end());
    std::vector<float> row = greedy->rows[greedy->rows.size() - 2];
    const auto best = std::max_element(row.begin(), row.end());
    token = static_cast<TokenId>(best - row.begin());
    *best = -1e30f;
    other = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
    greedy->tokens.push_back(token);
    const std::vector<KvNode> leaves = {nodes[0]};
    blocks->Retain(sequence, leaves);
    COPPICE_RETURN_IF_ERROR(blocks->Commit(sequence, leaves, runner->commits()).status());
  }
  blocks->Close(sequence);
  return absl::OkStatus();
}

class RankRunners {
 public:
  using Body = std::function<absl::Status(ModelRunner*)>;

  // Loads on every rank; the leader runs the body, the others follow it. How each rank ends. A rank
  // that returns early is gone for the others, as a process that ends.
  std::vector<absl::Status> RunRanks(int ranks, const Body& body) {
    PlanQueues plans(ranks);
    std::vector<absl::Status> ends(ranks);
    test::RunRanks(ranks, [&](comm::Communicator* communicator) {
      const int rank = communicator->rank();
      ends[rank] = RunRank(communicator, &plans, body);
      if (rank == 0) plans.Stop();
    });
    return ends;
  }

  // Before a follower runs a plan; an error ends the rank.
  std::function<absl::Status(int rank, const StepPlan& plan)> before_plan_;
  ModelRunnerOptions options_;
  std::string description_;  // of the leader's backend

 private:
  absl::Status RunRank(comm::Communicator* communicator, PlanQueues* plans, const Body& body) {
    const int rank = communicator->rank();
    ModelRunnerOptions options = options_;
    options.collectives.place = rank;
    COPPICE_ASSIGN_OR_RETURN(const auto runner, ModelRunner::Load(options, communicator));
    if (rank == 0) {
      description_ = runner->backend_description();
      runner->SendPlansTo(plans);
      return body(runner.get());
    }
    while (auto plan = plans->Take(rank)) {
      if (before_plan_) COPPICE_RETURN_IF_ERROR(before_plan_(rank, *plan));
      COPPICE_RETURN_IF_ERROR(runner->Follow(*std::move(plan)));
    }
    return absl::OkStatus();
  }
};

}  // namespace coppice::model
