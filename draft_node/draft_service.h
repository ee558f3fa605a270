// The draft node's engine. Takes commands from worker leaders, keeps sessions, and grows the
// forests of all waiting requests together, level by level, with prefill chunks in the same steps.
// One thread owns everything here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "catalogue/catalogue_store.h"
#include "comm/channel.h"
#include "comm/node_agent.h"
#include "draft_node/draft_session.h"
#include "draft_node/forest_builder.h"
#include "grammar/format_store.h"
#include "model/model_runner.h"
#include "node/energy/energy_shares.h"
#include "plan/step_limits.h"
#include "proto/draft.pb.h"

namespace coppice::draft_node {

struct DraftServiceOptions {
  // Most rows of one step. A larger forest is refused.
  int max_rows = kDefaultMaxRows;
  // Most prefill tokens of one step, for all sessions together. With a smaller chunk, other forests
  // wait less. Forests come first. But if they leave prompts less than a quarter of the rows,
  // prompts come first in the next step.
  int prefill_chunk = kDefaultPrefillChunk;
  // The most sequences that it drafts for at the same time. Further ones are refused and decode
  // without drafts. Raise it, and kv_bytes, if a node serves more sequences.
  int max_sessions = 64;
  // Seconds after which an unused session is dropped and its KV freed.
  double session_idle_s = 300;
  // A reply is announced to its leader only if, in the last step, the time from the start of the
  // head until all levels were chosen was shorter than this. Seconds. The default is how long a
  // leader stays awake.
  double announce_within_s = comm::kStayAwake_s;
  // nullptr: energy is not measured. Must outlive the service.
  const node::EnergyMeter* energy = nullptr;
  // The vocabulary of the draft model. nullptr: drafts ignore formats, so fewer of them are
  // accepted.
  std::shared_ptr<const tokenizer::Vocabulary> vocabulary;
  // nullptr: drafts ignore catalogues.
  std::shared_ptr<catalogue::CatalogueStore> catalogues;
};

class DraftService {
 public:
  // All must outlive the service. agent may be nullptr (tests).
  DraftService(const DraftServiceOptions& options, model::ModelRunner* runner,
               comm::ServerChannel* leaders, comm::NodeAgent* agent, const Clock* clock);
  ~DraftService();

  // Serves until the coordinator says stop or a stop signal arrives. An error means a failed
  // forward pass.
  absl::Status Run();
  // One turn: takes what has arrived, lets the device grow the forests that it can, and runs at
  // most one step for everything else. Waits at most timeout_ms when there is nothing to do.
  absl::Status RunOnce(int timeout_ms);
  bool stopped() const { return stopped_; }
  bool Drafting() const;  // a forest is under way

 private:
  using Key = std::pair<std::string, uint64_t>;  // leader connection, session id
  struct Slot {
    std::unique_ptr<DraftSession> session;
    std::unique_ptr<ForestBuilder> builder;           // set while a forest is under way
    std::unique_ptr<decoding::DraftRequest> waiting;  // waits until the prefill is done
    double request_time_s = 0, model_s = 0, last_used_s = 0;
    std::string trace_id;      // of the request
    node::EnergyTally energy;  // joules since the leader was last told
  };
  struct KeyRows {
    Key key;
    int rows;
  };

  void TakeCommands();
  void TakeCoordinatorMessages();
  // Closes sessions and frees their KV.
  void Drop(absl::FunctionRef<bool(const Key&)> which);
  void Open(const std::string& peer, const proto::OpenDraft& open);
  void Accept(const std::string& peer, const proto::DraftRequest& message);
  void TakeStates(const std::string& peer, const proto::PromptStates& message);
  // Columns of the states that a message may bring, or must; 0: none.
  int state_columns() const { return StateNeedsOf(runner_->config()).columns; }
  absl::Status CheckStates(const proto::RowStates& states, bool with_roots) const;
  void Begin(const Key& key, Slot* slot);
  void Announce(absl::Span<const KeyRows> stepped);
  void BeginPrefilled();
  void TellPrefilled(const Key& key);
  std::vector<Key> Turns() const;
  absl::Status Step();
  // Runs all levels of the new forests that the device can grow.
  absl::Status StepOnDevice();
  // Adds the rows of as many forests as fit and appends them to *stepped.
  void AddForests(absl::Span<const Key> turns, model::StepBuilder* step,
                  std::vector<KeyRows>* stepped);
  void AddPrefills(absl::Span<const Key> turns, model::StepBuilder* step,
                   std::vector<KeyRows>* prefilled);
  bool PromptsLackRows(absl::Span<const KeyRows> prefilled) const;
  void ShareEnergy(absl::Span<const KeyRows> forests, absl::Span<const KeyRows> prefills);
  void Grow(const Key& key, const kernels::StepRows& rows, double model_s);
  static uint32_t RoundOf(const Slot& slot);  // of the request in work; 0: there is none
  void FailLater(const Key& key, const absl::Status& why);
  void FailThose();
  void Reply(const Key& key, Slot* slot);
  void Fail(const Key& key, uint32_t round, const std::string& why);
  void PublishStatus();
  bool HasWork() const;

  DraftServiceOptions options_;
  grammar::FormatStore formats_;
  model::ModelRunner* runner_;
  model::BlockManager* blocks_;
  HostThreads* threads_;
  ProgressWatchdog* steps_;
  comm::ServerChannel* leaders_;
  comm::NodeAgent* agent_;
  const Clock* clock_;
  node::EnergyShares energy_;
  std::map<Key, Slot> slots_;
  Key first_;                                        // has the first turn in the next step
  bool prompts_first_ = false;                       // prompts come before forests in the next step
  std::vector<std::pair<Key, std::string>> failed_;  // reported at the end of the step
  bool stopped_ = false;
  double last_sweep_s_ = 0;
  double last_end_s_ = 0;     // seconds from the last head until its levels were chosen
  double awake_until_s_ = 0;  // stay awake until then, since a leader has announced a request
};

}  // namespace coppice::draft_node
