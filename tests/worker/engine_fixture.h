// An engine on a tiny model, with a coordinator that is a queue, for tests.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_runner.h"
#include "worker/engine.h"

namespace coppice::worker {

inline constexpr int kVocab = 96, kPositions = 64;

// Says stop once as many sequences have ended as it was told to wait for.
class QueuedCoordinator : public comm::NodeAgent {
 public:
  void Send(const proto::NodeMessage& message) override {
    for (const proto::SequenceUpdate& update : message.progress().updates()) {
      if (!update.error_code().empty()) errors_[update.sequence_id()] = update;
      if (update.finished()) finished_[update.sequence_id()] = update;
      std::vector<TokenId>& stable = stable_[update.sequence_id()];
      stable.insert(stable.end(), update.stable_tokens().begin(), update.stable_tokens().end());
      if (update.finished() || !update.error_code().empty()) --to_wait_for_;
    }
  }
  std::optional<proto::CoordinatorMessage> Receive() override {
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
  comm::Pollable socket() override {
    comm::Pollable pollable;
    pollable.ready = !queue_.empty() || to_wait_for_ <= 0;
    return pollable;
  }
  void SetStatus(const proto::NodeStatus&) override {}

  void Start(const proto::StartSequence& start, bool will_end = true) {
    *queue_.emplace_back().mutable_start() = start;
    to_wait_for_ += will_end ? 1 : 0;
    stopped_ = false;
  }
  void Send(const proto::DraftNodes& nodes) {
    *queue_.emplace_back().mutable_draft_nodes() = nodes;
  }
  void Cancel(uint64_t id) { queue_.emplace_back().mutable_cancel()->set_sequence_id(id); }
  const std::map<uint64_t, proto::SequenceUpdate>& errors() const { return errors_; }
  const std::map<uint64_t, proto::SequenceUpdate>& finished() const { return finished_; }
  // What all updates of a sequence declared stable.
  const std::vector<TokenId>& stable(uint64_t id) const { return stable_.at(id); }

 private:
  std::deque<proto::CoordinatorMessage> queue_;
  std::map<uint64_t, proto::SequenceUpdate> errors_, finished_;
  std::map<uint64_t, std::vector<TokenId>> stable_;
  int to_wait_for_ = 0;
  bool stopped_ = false;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    runner_ = test::LoadTinyRunner(Tiny(), dir_.path(), single_.get());
    plans_ = PlanLeader::Start(single_.get(), "", 1).value();
  }
  static test::TinyLlama Tiny() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = kPositions;
    return test::MakeTinyLlama(tiny);
  }
  static decoding::DecodingParams Params() {
    decoding::DecodingParams params;
    params.kind = decoding::DecodingKind::kBeamSampling;
    params.plain = true;
    params.beam_width = params.num_hypotheses = 3;
    params.max_tokens = 6;
    return params;
  }
  // Resolved, as the coordinator sends it.
  static proto::StartSequence MakeStart(uint64_t id, decoding::DecodingParams params) {
    if (params.method == nullptr) params.method = decoding::FirstMethod(params).value();
    proto::StartSequence start;
    start.set_sequence_id(id);
    for (TokenId token : {5, 6, 7}) start.add_prompt(token);
    *start.mutable_decoding() = proto::DecodingToMessage(params);
    return start;
  }
  void Run() { RunOn(runner_.get()); }
  void RunOn(model::ModelRunner* runner) {
    const int64_t used = runner->blocks()->counts().used;
    EngineOptions options;
    options.scheduler.kv_blocks = runner->blocks()->counts().total;
    options.scheduler.max_rows = 64;
    options.scheduler.prefill_chunk = 32;
    options.drafts.vocab_size = kVocab;
    options.drafts.max_rows = 64;
    ASSERT_TRUE(Engine(options, runner, plans_.get(), &coordinator_, &clock_).Run().ok());
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
