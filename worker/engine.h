// The leader's loop: takes sequences from the coordinator and forests from the draft nodes, and
// runs step after step of the target over whatever is ready (docs/architecture.md 2, steps 3-10).
// The decisions are made by its parts: SequenceTable (the phase of each sequence), Scheduler
// and StartSequence (admission), StepPlanner (rows of the next step), ForestSizer (size of the next
// draft). One thread owns everything here. It runs verdicts and announcements on the runner's
// threads and waits for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "catalogue/catalogue_store.h"
#include "comm/collective_counter.h"
#include "comm/node_agent.h"
#include "grammar/format_store.h"
#include "model/model_runner.h"
#include "node/energy/energy_shares.h"
#include "proto/control.pb.h"
#include "tokenizer/vocabulary.h"
#include "worker/admission.h"
#include "worker/draft_client.h"
#include "worker/forest_sizer.h"
#include "worker/pass_timing.h"
#include "worker/plan_link.h"
#include "worker/scheduler.h"
#include "worker/sequence_table.h"
#include "worker/step_counts.h"
#include "worker/step_planner.h"
#include "worker/step_trace.h"
#include "worker/suffix_drafts.h"

namespace coppice::worker {

struct EngineOptions {
  SchedulerOptions scheduler;
  DraftClientOptions drafts;
  SuffixDraftOptions suffixes;
  // File that gets the spans of the loop, for measurements. "": none.
  std::string trace_file;
  // For stop strings; nullptr: requests that have some are refused.
  std::shared_ptr<const tokenizer::Vocabulary> vocabulary;
  // nullptr: requests for one are refused.
  std::shared_ptr<catalogue::CatalogueStore> catalogues;
  // The meter of the whole replica. nullptr: not measured. Must outlive the engine.
  const node::EnergyMeter* energy = nullptr;
  // Backend::RowCosts: what steps are expected to take before they have run. May be empty.
  std::vector<kernels::RowCost> row_costs;
  // The runner's counter. nullptr: bytes are not reported. Must outlive the engine.
  const comm::CollectiveCounter* collectives = nullptr;
};

class Engine {
 public:
  // All must outlive the engine. The runner's plans go to the followers of *plans.
  Engine(const EngineOptions& options, model::ModelRunner* runner, PlanLeader* plans,
         comm::NodeAgent* agent, const Clock* clock);
  ~Engine();

  // Grows drafts in this process, too: DraftClient::AddOwn. Before Run.
  void UseOwnDraft(std::unique_ptr<comm::ClientChannel> draft, bool takes_states = false);

  // Serves until the coordinator says stop or a stop signal arrives. An error means a failed step.
  absl::Status Run();

 private:
  // Messages.
  void Wait();
  double ShareUntil() const;
  void TakeCoordinatorMessages();
  void Start(const proto::StartSequence& start);
  void Cancel(uint64_t sequence_id);
  void DropAll();
  void AdmitWaiting();
  int64_t FreeBlocks() const;
  int64_t UnexpectedBlocks();
  int64_t ExpectMore(Sequence* sequence);
  void MakeRoom();
  void Preempt(Sequence* sequence);
  void SendStates();
  void TakeForests();
  void TakeForest(DraftArrival arrival, double now_s);
  void RecordDraft(const Sequence& sequence, const DraftArrival& arrival);
  void GiveUpLateDrafts(double now_s);

  // The step.
  int MostRows() const;
  absl::Status Step();
  void RecordStep(const StepPlanner::Planned& planned, int rows);
  void AnnounceRequests(const std::vector<Participant>& participants);
  void ShareEnergy(const StepPlanner::Planned& planned, int rows);
  void DecideAll(const kernels::StepRows& rows, std::vector<Participant>* participants,
                 proto::Progress* progress);
  void ScorePrompts(const kernels::StepRows& rows, StepPlanner::Planned* planned,
                    proto::Progress* progress);
  absl::StatusOr<std::vector<TokenScore>> Scores(const kernels::StepRows& rows,
                                                 const StepPlanner::PromptRows& prompt);
  void EndScored(const std::vector<uint64_t>& ended, proto::Progress* progress);
  void Decide(Participant* participant, proto::Progress* progress);
  void GoOn(const Participant& participant, proto::Progress* progress);
  void Commit(const Participant& participant);
  SizerLimits ForestLimits(const Sequence& sequence) const;
  bool WorthPreparing(const Sequence& sequence);
  NoDraftReason Prepare(Sequence* sequence, DraftShape shape, const SizerLimits& limits);
  void NextRound(Sequence* sequence);
  bool HasSuffixDrafts(const Sequence& sequence) const;
  void NextBySuffixes(Sequence* sequence);
  void GoPlain(Sequence* sequence, NoDraftReason reason);

  // Ends and reports (engine_report.cc).
  void Report(Sequence* sequence, proto::Progress* progress);
  void Send(proto::Progress progress);
  void Fail(Sequence* sequence, const Refusal& why);
  // Handles an error of Verify. A format that cannot be continued is not an internal error.
  void FailRound(Sequence* sequence, const absl::Status& status);
  void FailInternally(Sequence* sequence, const absl::Status& status);
  void Remove(Sequence* sequence);
  std::optional<double> EnergyOf(const Sequence& sequence) const;
  void PublishStatus();
  void CountStep(const StepPlanner::Planned& planned, int rows);
  void Trace(const Participant& participant, double now_s);
  void TraceDraft(const Sequence& sequence, NoDraftReason failed);
  void TraceStep(double begin_s, int rows, const StepPlanner::Planned& planned);
  void SendTrace();

  model::ModelRunner* runner_;
  grammar::FormatStore formats_;
  PlanLeader* plans_;
  comm::NodeAgent* agent_;
  SequenceTable sequences_;
  Scheduler scheduler_;
  StepPlanner planner_;
  ForestSizer sizer_;
  DraftClient drafts_;
  SuffixDrafts suffixes_;
  PassTiming clock_;
  StepTrace trace_;
  StepCounts step_counts_;
  const node::EnergyMeter* meter_;
  const comm::CollectiveCounter* collectives_;
  node::EnergyShares energy_;
  std::vector<uint64_t> starved_;  // sequences for whose rows the last step found no KV
  bool stalled_ = false;           // and it had no rows at all
  std::vector<uint64_t> asking_;   // sequences whose drafts are about to be asked for
  proto::NodeCounters counters_;
  bool stopped_ = false;
  bool more_states_ = false;  // than could be sent to drafts in this turn
  bool admits_ = false;       // sequences have arrived, or blocks were released
  double last_status_s_ = 0;
  SequenceTable::RowsOfAll rows_of_all_;  // rows before the decisions of this step
  int running_in_step_ = 0;               // sequences then
  double last_step_end_s_ = 0;            // or since when there has been work
  double looked_s_ = 0;                   // forests that came before this moment have been taken
  int drafting_ = 1;          // drafts that were requested together, when the last of them arrived
  double share_until_s_ = 0;  // ShareUntil of this turn of the loop
};

}  // namespace coppice::worker
