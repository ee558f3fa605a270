// The leader's loop: takes sequences from the coordinator, forests from the draft nodes, and runs
// one target pass after another over whatever is ready (docs/architecture.md 2, steps 3-10).
// Decides alone; the other ranks only compute. One thread owns everything here, and lends verdicts
// and announcements to the backend's threads while it waits for them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/node_agent.h"
#include "model/model_host.h"
#include "proto/control.pb.h"
#include "worker/draft_client.h"
#include "worker/forest_sizer.h"
#include "worker/plan_link.h"
#include "worker/round_trace.h"
#include "worker/scheduler.h"
#include "worker/sequence.h"
#include "worker/verify_step.h"

namespace coppice {

struct EngineOptions {
  SchedulerOptions scheduler;
  DraftClientOptions drafts;
  std::string trace_rounds;  // CSV file with the time of every round; "" = none
};

class Engine {
 public:
  // All must outlive the engine.
  Engine(const EngineOptions& options, ModelHost* host, PlanLeader* plans, NodeAgent* agent);
  ~Engine();

  // Serves until the coordinator says stop or a stop signal arrives; an error is a failed pass.
  absl::Status Run();

 private:
  struct Participant {
    Sequence* sequence;
    VerifyRows rows;
    absl::StatusOr<Verdict> verdict;
  };

  void Wait();
  void TakeCoordinatorMessages();
  void Start(const proto::StartSequence& start);
  void Cancel(uint64_t sequence_id);
  void AdmitWaiting();
  void TakeForests();
  bool HasWork() const;

  absl::Status Step();
  void AppendVerifications(BatchBuilder* batch, std::vector<Participant>* participants);
  void AppendPrefills(BatchBuilder* batch, std::vector<Participant>* participants);
  bool Join(Sequence* sequence, BatchBuilder* batch, std::vector<Participant>* participants);
  void DecideAll(absl::Span<const float> logits, double forward_s,
                 std::vector<Participant>* participants, proto::Progress* progress);
  void Decide(Participant* participant, double forward_s, proto::Progress* progress);
  void NextRound(Sequence* sequence);
  void GoPlain(Sequence* sequence, Fallback reason);

  void Report(Sequence* sequence, proto::Progress* progress);
  void Fail(Sequence* sequence, const std::string& code, const std::string& message);
  void Release(Sequence* sequence);
  void PublishStatus();
  void Trace(const Sequence& sequence, int rows, int layers, double now_s, double forward_s);

  EngineOptions options_;
  ModelHost* host_;
  PlanLeader* plans_;
  NodeAgent* agent_;
  Scheduler scheduler_;
  ForestSizer sizer_;
  DraftClient drafts_;
  RoundTrace trace_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  std::deque<uint64_t> waiting_;               // not admitted, in order of arrival
  std::map<uint64_t, double> draft_deadline_;  // sequences in kDrafting
  std::deque<uint64_t> ready_;                 // sequences in kReady, in order of readiness
  std::vector<KvCopy> commits_;                // for the next pass
  proto::NodeCounters counters_;
  bool stopped_ = false;
  double last_status_s_ = 0;
  double head_begin_s_ = 0;  // when only the head of the last pass was left
  // From there to its first verdicts. Draft nodes are told then that they will be asked, so that
  // they wake up meanwhile, unless it takes longer than they would stay awake.
  double last_end_s_ = 0;
};

}  // namespace coppice
