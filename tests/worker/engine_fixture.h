// For tests: an engine with a tiny model. A queue acts as its coordinator.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"
#include "worker/engine.h"

namespace coppice::worker {

inline constexpr int kVocab = 96, kPositions = 64;

// Stops the engine when the expected number of sequences has ended.
class QueuedCoordinator : public comm::NodeAgent {
 public:
  void Send(const proto::NodeMessage& message) override {
    for (const proto::SequenceUpdate& update : message.progress().updates()) {
      if (!update.error_code().empty()) errors_[update.sequence_id()] = update;
      EXPECT_EQ(update.has_index(), update.error_code().empty());
      if (update.has_index()) {
        EXPECT_EQ(update.index(), updates_[update.sequence_id()]++);
      }
      if (update.finished()) finished_[update.sequence_id()] = update;
      std::vector<TokenId>& stable = stable_[update.sequence_id()];
      stable.insert(stable.end(), update.stable_tokens().begin(), update.stable_tokens().end());
      if (update.rounds_size() > 0)
        Append(update.rounds(), &rounds_[update.sequence_id()].emplace_back());
      Append(update.stable_scores(), &stable_scores_[update.sequence_id()]);
      Append(update.prompt_scores(), &prompt_scores_[update.sequence_id()]);
      if (update.has_energy_joules())
        energy_[update.sequence_id()].push_back(update.energy_joules());
      if (!update.finished() && update.error_code().empty()) continue;
      updates_.erase(update.sequence_id());  // a test may use the id again
      --to_wait_for_;
    }
  }
  std::optional<proto::CoordinatorMessage> Receive() override {
    if (std::exchange(turn_begins_, false) && act_) BeginTurn();
    std::optional<proto::CoordinatorMessage> message = Next();
    turn_begins_ = !message.has_value();
    return message;
  }
  comm::Pollable socket() override {
    comm::Pollable pollable;
    pollable.ready = act_ || !queue_.empty() || to_wait_for_ <= 0;
    return pollable;
  }
  void SetStatus(const proto::NodeStatus& status) override { status_ = status; }

  // Calls act(0), act(1), ... on the engine's thread at the start of each turn. The engine then
  // never sleeps. A run of `most` turns has failed.
  void EveryTurn(std::function<void(int)> act, int most = 3000) {
    act_ = std::move(act);
    turn_ = 0;
    most_turns_ = most;
  }
  // Makes the run wait until `ends` more sequences have ended, besides those of Start.
  void WaitFor(int ends) {
    to_wait_for_ += ends;
    stopped_ = false;
  }
  void Start(const proto::StartSequence& start, bool will_end = true) {
    *queue_.emplace_back().mutable_start() = start;
    WaitFor(will_end ? 1 : 0);
  }
  void Send(const proto::DraftNodes& nodes) {
    *queue_.emplace_back().mutable_draft_nodes() = nodes;
  }
  void Accept() { queue_.emplace_back().mutable_register_ack()->set_accepted(true); }
  void Cancel(uint64_t id) { queue_.emplace_back().mutable_cancel()->set_sequence_id(id); }
  const std::map<uint64_t, proto::SequenceUpdate>& errors() const { return errors_; }
  const std::map<uint64_t, proto::SequenceUpdate>& finished() const { return finished_; }
  // All stable tokens of a sequence, from all its updates.
  const std::vector<TokenId>& stable(uint64_t id) const { return stable_.at(id); }
  size_t tokens(uint64_t id) const {  // stable ones, so far
    const auto found = stable_.find(id);
    return found == stable_.end() ? 0 : found->second.size();
  }
  // The scores of all stable tokens, and of the prompt.
  const std::vector<proto::TokenScore>& stable_scores(uint64_t id) const {
    return stable_scores_.at(id);
  }
  const std::vector<proto::TokenScore>& prompt_scores(uint64_t id) const {
    return prompt_scores_.at(id);
  }
  // The rounds of each update that has some.
  const std::vector<std::vector<proto::RoundTimes>>& rounds(uint64_t id) const {
    return rounds_.at(id);
  }
  // What each update said that the sequence had used.
  const std::vector<double>& energy(uint64_t id) const { return energy_.at(id); }
  const proto::NodeStatus& status() const { return status_; }  // the last one

 private:
  template <class Messages, class Message>
  static void Append(const Messages& messages, std::vector<Message>* all) {
    all->insert(all->end(), messages.begin(), messages.end());
  }
  void BeginTurn() {
    if (turn_ == most_turns_) {
      ADD_FAILURE() << to_wait_for_ << " sequences have not ended after " << turn_ << " turns";
      to_wait_for_ = 0;
      return;
    }
    act_(turn_++);
  }
  std::optional<proto::CoordinatorMessage> Next() {
    proto::CoordinatorMessage message;
    if (!queue_.empty()) {
      message = queue_.front();
      queue_.pop_front();
      return message;
    }
    if (to_wait_for_ > 0 || stopped_) return std::nullopt;
    stopped_ = true;
    message.mutable_stop()->set_reason("the test ends");
    return message;
  }

  std::deque<proto::CoordinatorMessage> queue_;
  std::map<uint64_t, proto::SequenceUpdate> errors_, finished_;
  std::map<uint64_t, std::vector<TokenId>> stable_;
  std::map<uint64_t, std::vector<proto::TokenScore>> stable_scores_, prompt_scores_;
  std::map<uint64_t, std::vector<std::vector<proto::RoundTimes>>> rounds_;
  std::map<uint64_t, std::vector<double>> energy_;
  std::map<uint64_t, uint32_t> updates_;
  proto::NodeStatus status_;
  std::function<void(int)> act_;
  int turn_ = 0, most_turns_ = 0;
  bool turn_begins_ = true;
  int to_wait_for_ = 0;
  bool stopped_ = false;
};

inline void ExpectSameAnswer(const proto::SequenceUpdate& one, const proto::SequenceUpdate& other) {
  ASSERT_GT(one.hypotheses_size(), 0);
  ASSERT_EQ(one.hypotheses_size(), other.hypotheses_size());
  for (int i = 0; i < one.hypotheses_size(); ++i) {
    EXPECT_EQ(one.hypotheses(i).SerializeAsString(), other.hypotheses(i).SerializeAsString());
  }
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    runner_ = test::LoadTinyRunner(Tiny(), dir_.path(), single_.get());
    plans_ = PlanLeader::Start(single_.get(), "", 1, {}).value();
  }
  static test::TinyLlama Tiny() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = kPositions;
    return test::MakeTinyLlama(tiny);
  }
  static decoding::DecodingParams Params() {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.plain = true;
    params.beam_width = params.num_hypotheses = 3;
    params.max_tokens = 6;
    return params;
  }
  // A start message with the method resolved, as the coordinator sends it.
  static proto::StartSequence MakeStart(uint64_t id, decoding::DecodingParams params,
                                        const std::vector<TokenId>& prompt = {5, 6, 7}) {
    if (params.method == nullptr) params.method = decoding::FirstMethod(params).value();
    proto::StartSequence start;
    start.set_sequence_id(id);
    for (TokenId token : prompt) start.add_prompt(token);
    *start.mutable_decoding() = proto::DecodingToMessage(params);
    return start;
  }
  void Run() { RunOn(runner_.get()); }
  static EngineOptions Options(model::ModelRunner* runner) {
    EngineOptions options;
    options.scheduler.kv_blocks = runner->blocks()->counts().total;
    options.scheduler.max_rows = 64;
    options.scheduler.prefill_chunk = 32;
    options.drafts.vocab_size = kVocab;
    options.drafts.max_rows = 64;
    return options;
  }
  void RunOn(model::ModelRunner* runner) { RunOn(runner, Options(runner), clock_); }
  void RunOn(model::ModelRunner* runner, const EngineOptions& options, const Clock& clock,
             std::unique_ptr<comm::ClientChannel> own_draft = nullptr, bool takes_states = false) {
    const int64_t used = runner->blocks()->counts().used;
    Engine engine(options, runner, plans_.get(), &coordinator_, &clock);
    if (own_draft != nullptr) engine.UseOwnDraft(std::move(own_draft), takes_states);
    const absl::Status run = engine.Run();
    ASSERT_TRUE(run.ok()) << run;
    EXPECT_EQ(runner->blocks()->counts().used, used);
    EXPECT_TRUE(runner->blocks()->CheckIntegrity().ok()) << runner->blocks()->CheckIntegrity();
  }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<PlanLeader> plans_;
  SteadyClock clock_;
  QueuedCoordinator coordinator_;
};

}  // namespace coppice::worker
