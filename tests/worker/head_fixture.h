// For tests of an engine whose target keeps the states that an EAGLE-3 head takes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "draft_node/draft_thread.h"
#include "model/target_states.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/worker/pressure_fixture.h"
#include "worker/row_states.h"

namespace coppice::worker {

class HeadTest : public PressureTest {
 protected:
  HeadTest() : PressureTest({"", "auto"}) {
    test::WriteTinyLlama(Target(), model_dir_.path());
    test::WriteTinyLlama(test::MakeTinyEagle3(Target()), head_.path());
  }
  static test::TinyLlama Target() {
    return test::MakeTinyLlama({.layers = 4, .vocab = kVocab, .max_positions = 256});
  }
  // keeps: the states that the head takes. blocks: of the pool, at least.
  std::unique_ptr<model::ModelRunner> LoadTarget(int64_t blocks, bool keeps) {
    model::ModelRunnerOptions options;
    options.dir = model_dir_.path();
    options.states_for = keeps ? head_.path() : "";
    options.threads = 1;
    return test::LoadWithBlocks(options, blocks, single_.get());
  }
  static model::ModelRunnerOptions HeadOptions(const std::string& head, const std::string& target) {
    model::ModelRunnerOptions options;
    options.dir = head;
    options.target = target;
    options.threads = 1;
    options.kv_bytes = 8 << 20;
    return options;
  }
  std::unique_ptr<draft_node::DraftThread> LoadHead() {
    auto draft = draft_node::DraftThread::Load(
        [options = HeadOptions(head_.path(), model_dir_.path())](comm::Communicator* single) {
          return model::ModelRunner::Load(options, single);
        });
    EXPECT_TRUE(draft.ok()) << draft.status();
    return *std::move(draft);
  }
  uint64_t States() const {
    return model::StatesFingerprint(head_.path(), model_dir_.path()).value();
  }
  // Answers by id. own: the head of the process, if there is one.
  std::map<uint64_t, std::string> DecodeWith(model::ModelRunner* runner,
                                             const std::vector<proto::StartSequence>& starts,
                                             std::unique_ptr<comm::ClientChannel> own,
                                             const proto::DraftNodes& nodes = {}) {
    coordinator_ = QueuedCoordinator();
    coordinator_.Send(nodes);
    for (const proto::StartSequence& start : starts) coordinator_.Start(start);
    if (act_) coordinator_.EveryTurn(act_, /*most=*/100000);
    EngineOptions options = EngineOptionsOf(runner);
    options.drafts.min_deadline_s = deadline_s_;
    options.drafts.max_deadline_s = 2 * deadline_s_;
    options.suffixes.on = false;
    std::optional<PoolStates> states;
    if (runner->state_columns() > 0) {
      options.drafts.states = &states.emplace(runner);
      options.drafts.states_fingerprint = States();
    }
    RunOn(runner, options, clock_, std::move(own), /*takes_states=*/true);
    EXPECT_THAT(coordinator_.errors(), ::testing::IsEmpty());
    std::map<uint64_t, std::string> answers;
    for (const auto& [id, update] : coordinator_.finished()) {
      answers[id] = Answer(id);
      preemptions_ += update.stats().preemptions();
      drafted_ += update.stats().drafted_nodes();
      accepted_ += update.stats().accepted_nodes();
    }
    counters_ = coordinator_.status().counters();
    return answers;
  }

  // A session for each of them.
  static draft_node::DraftServiceOptions ManySessions() {
    draft_node::DraftServiceOptions options;
    options.max_sessions = 1000;
    return options;
  }
  // No request failed for want of a state, and states are a part of what was sent.
  void ExpectServed() const {
    for (const char* reason : {"refused", "mismatch", "no_states"})
      EXPECT_EQ(counters_.rounds_without_draft().count(reason), 0u) << reason;
    EXPECT_GT(counters_.state_bytes(), 0u);
    EXPECT_GT(counters_.draft_bytes(), counters_.state_bytes());
  }

  std::function<void(int)> act_;  // every turn of the engine
  double deadline_s_ = 2;         // of a draft
  test::TempDir head_;
  uint64_t accepted_ = 0;
  proto::NodeCounters counters_;  // of the last run
};

}  // namespace coppice::worker
