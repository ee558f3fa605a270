// The leader's loop on a tiny model, with a coordinator that is a queue: what a start may ask, what
// comes back, and that nothing is held afterwards.
#include "worker/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>

#include "comm/communicator.h"
#include "proto/convert.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_host.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVocab = 96, kPositions = 64;

// Says stop once as many sequences have ended as it was told to wait for.
class QueuedCoordinator : public NodeAgent {
 public:
  void Send(const proto::NodeMessage& message) override {
    for (const proto::SequenceUpdate& update : message.progress().updates()) {
      if (!update.error_code().empty()) errors_[update.sequence_id()] = update;
      if (update.finished()) finished_[update.sequence_id()] = update;
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
  Pollable socket() override {
    Pollable pollable;
    pollable.ready = !queue_.empty() || to_wait_for_ <= 0;
    return pollable;
  }
  void SetStatus(const proto::NodeStatus&) override {}

  void Start(const proto::StartSequence& start, bool will_end = true) {
    *queue_.emplace_back().mutable_start() = start;
    to_wait_for_ += will_end ? 1 : 0;
    stopped_ = false;
  }
  void Cancel(uint64_t id) { queue_.emplace_back().mutable_cancel()->set_sequence_id(id); }
  const std::map<uint64_t, proto::SequenceUpdate>& errors() const { return errors_; }
  const std::map<uint64_t, proto::SequenceUpdate>& finished() const { return finished_; }

 private:
  std::deque<proto::CoordinatorMessage> queue_;
  std::map<uint64_t, proto::SequenceUpdate> errors_, finished_;
  int to_wait_for_ = 0;
  bool stopped_ = false;
};

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.max_positions = kPositions;
    host_ = LoadTinyHost(tiny, dir_.path(), single_.get());
    plans_ = PlanLeader::Start(single_.get(), "", 1).value();
  }
  static DecodingParams Params() {
    DecodingParams params;
    params.kind = DecodingKind::kBeamSampling;
    params.method = "none";
    params.beam_width = params.num_hypotheses = 3;
    params.max_tokens = 6;
    return params;
  }
  static proto::StartSequence MakeStart(uint64_t id, const DecodingParams& params) {
    proto::StartSequence start;
    start.set_sequence_id(id);
    for (TokenId token : {5, 6, 7}) start.add_prompt(token);
    *start.mutable_decoding() = DecodingToMessage(params);
    return start;
  }
  void Run() {
    const int64_t used = host_.blocks->counts().used;
    EngineOptions options;
    options.scheduler.kv_blocks = host_.blocks->counts().total;
    options.scheduler.max_rows = 64;
    options.scheduler.prefill_chunk = 32;
    options.drafts.vocab_size = kVocab;
    options.drafts.max_rows = 64;
    ASSERT_TRUE(Engine(options, &host_, plans_.get(), &coordinator_).Run().ok());
    EXPECT_EQ(host_.blocks->counts().used, used);
    EXPECT_TRUE(host_.blocks->CheckIntegrity().ok()) << host_.blocks->CheckIntegrity();
  }

  TempDir dir_;
  std::unique_ptr<Communicator> single_ = MakeSingleCommunicator();
  ModelHost host_;
  std::unique_ptr<PlanLeader> plans_;
  QueuedCoordinator coordinator_;
};

TEST_F(EngineTest, WhatCannotBeServedIsRefusedByNameAndTheRestGoesOn) {
  struct Case {
    const char *code, *names;
    std::function<void(proto::StartSequence*)> change;
  };
  const Case cases[] = {
      {"invalid_value", "prompt: no tokens", [](auto* s) { s->clear_prompt(); }},
      {"invalid_value", "prompt[1]: 96", [](auto* s) { s->set_prompt(1, kVocab); }},
      {"invalid_value", "temperature", [](auto* s) { s->mutable_decoding()->set_temperature(-1); }},
      {"unsupported_combination", "certified",
       [](auto* s) { s->mutable_decoding()->set_method("certified"); }},
      {"context_length_exceeded", "64",
       [](auto* s) { s->mutable_decoding()->set_max_tokens(kPositions); }},
      {"unsupported_combination", "values of noise a layer",
       [](auto* s) {
         s->mutable_decoding()->set_method("gumbel_slots");
         s->mutable_decoding()->set_beam_width(4000);
         s->mutable_decoding()->set_num_hypotheses(1);
       }},
      {"kv_capacity_exceeded", "forward pass of 64 rows",
       [](auto* s) {
         s->mutable_decoding()->set_beam_width(1000);
         s->mutable_decoding()->set_num_hypotheses(1);
         s->mutable_decoding()->set_max_tokens(40);
       }},
  };
  uint64_t id = 0;
  for (const Case& refused : cases) {
    proto::StartSequence start = MakeStart(++id, Params());
    refused.change(&start);
    coordinator_.Start(start);
  }
  coordinator_.Start(MakeStart(100, Params()));
  Run();
  id = 0;
  for (const Case& refused : cases) {
    ASSERT_EQ(coordinator_.errors().count(++id), 1u) << refused.names;
    const proto::SequenceUpdate& error = coordinator_.errors().at(id);
    EXPECT_EQ(error.error_code(), refused.code) << error.error_message();
    EXPECT_THAT(error.error_message(), HasSubstr(refused.names));
  }
  EXPECT_EQ(coordinator_.errors().size(), id);
  ASSERT_EQ(coordinator_.finished().size(), 1u);
  EXPECT_GT(coordinator_.finished().at(100).hypotheses_size(), 0);
}

TEST_F(EngineTest, ASecondStartOfASequenceIsDropped) {
  coordinator_.Start(MakeStart(1, Params()));
  coordinator_.Start(MakeStart(1, Params()), /*will_end=*/false);
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().size(), 1u);
}

TEST_F(EngineTest, ACancelledSequenceReportsNothingAndFreesItsBlocks) {
  coordinator_.Start(MakeStart(1, Params()), /*will_end=*/false);
  coordinator_.Cancel(1);
  coordinator_.Cancel(77);  // never heard of
  coordinator_.Start(MakeStart(2, Params()));
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().count(1), 0u);
  EXPECT_EQ(coordinator_.finished().count(2), 1u);
}

// What a sequence says does not depend on what shares its passes.
TEST_F(EngineTest, AnswersAreTheSameAloneAndAmongOthers) {
  coordinator_.Start(MakeStart(1, Params()));
  Run();
  const proto::SequenceUpdate alone = coordinator_.finished().at(1);
  for (uint64_t id = 2; id < 8; ++id) {
    DecodingParams params = Params();
    params.seed = id == 5 ? Params().seed : id;
    params.beam_width = params.num_hypotheses = id == 5 ? 3 : static_cast<int>(id);
    coordinator_.Start(MakeStart(id, params));
  }
  Run();
  const proto::SequenceUpdate& among = coordinator_.finished().at(5);
  ASSERT_EQ(among.hypotheses_size(), alone.hypotheses_size());
  for (int i = 0; i < alone.hypotheses_size(); ++i) {
    EXPECT_EQ(among.hypotheses(i).SerializeAsString(), alone.hypotheses(i).SerializeAsString());
  }
  EXPECT_NE(coordinator_.finished().at(6).hypotheses(0).SerializeAsString(),
            alone.hypotheses(0).SerializeAsString());
}

}  // namespace
}  // namespace coppice
