#include "worker/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decoding/method.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SchedulerOptions SmallPool() {
  SchedulerOptions options;
  options.kv_blocks = 100;
  options.max_rows = 64;
  return options;
}

Sequence MakeSequence(int prompt, int max_tokens, int width) {
  Sequence sequence;
  sequence.prompt.assign(prompt, 1);
  sequence.params.kind =
      width == 1 ? sampling::DecodingKind::kMultinomial : sampling::DecodingKind::kBeamSearch;
  sequence.params.method =
      decoding::FindMethod(width == 1 ? "gumbel_coupling" : "speculative_beam_search");
  sequence.params.beam_width = width;
  sequence.params.max_tokens = max_tokens;
  sequence.draft = decoding::DraftSizeOf(sequence.params);
  sequence.decoder = *decoding::MakeBeamDecoder(sequence.params);
  return sequence;
}

// Admits the sequence if its bound fits into *free, which it reduces.
bool AdmitAlone(Scheduler* scheduler, Sequence* sequence, int64_t* free) {
  const auto needs = [&](const Sequence& one) { return scheduler->BlocksBound(one); };
  const bool admitted = !scheduler->AdmitByTurns({sequence}, {*free, needs}).empty();
  if (admitted) *free -= needs(*sequence);
  return admitted;
}

TEST(SchedulerTest, RefusesWhatCanNeverFitAndNamesTheBlocks) {
  Scheduler scheduler(SmallPool());
  const absl::Status status = scheduler.CheckFits(MakeSequence(4000, 16, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("100"), std::string::npos) << status;
  EXPECT_TRUE(scheduler.CheckFits(MakeSequence(100, 16, 1)).ok());
}

TEST(SchedulerTest, WithWindowsItAdmitsByPages) {
  SchedulerOptions options = SmallPool();
  options.kv_storage = {.windows = {64}, .step_tokens = 32};
  Scheduler scheduler(options);
  Sequence sequence = MakeSequence(4000, 16, 1);
  EXPECT_TRUE(scheduler.CheckFits(sequence).ok());
  EXPECT_EQ(scheduler.BlocksBound(sequence),
            decoding::KvPagesBound(sequence.params, 4000, options.kv_storage));
  options.kv_storage.windows = {64, 0};
  const absl::Status status = Scheduler(options).CheckFits(sequence);
  EXPECT_NE(std::string(status.message()).find("KV pages"), std::string::npos) << status;
}

TEST(SchedulerTest, RefusesMoreBeamsThanAPassHasRows) {
  Scheduler scheduler(SmallPool());
  const absl::Status status = scheduler.CheckFits(MakeSequence(8, 2, 65));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("65 beams"), std::string::npos) << status;
}

// A prompt of 160 tokens and 16 more of one beam need eleven blocks at least. What fits at all in
// an empty pool is admitted to it, and two of them to one of twice the size.
TEST(SchedulerTest, TheLastFreeBlocksAreAdmittedTo) {
  SchedulerOptions options = SmallPool();
  options.kv_blocks = 1;
  while (!Scheduler(options).CheckFits(MakeSequence(160, 16, 1)).ok()) {
    ASSERT_LT(++options.kv_blocks, 100);
  }
  ASSERT_GE(options.kv_blocks, (160 + 16) / kBlockSize);
  for (int sequences : {1, 2}) {
    SCOPED_TRACE(sequences);
    SchedulerOptions pool = options;
    pool.kv_blocks = sequences * options.kv_blocks;
    Scheduler scheduler(pool);
    int64_t free = pool.kv_blocks;
    for (int i = 0; i < sequences; ++i) {
      Sequence sequence = MakeSequence(160, 16, 1);
      EXPECT_TRUE(AdmitAlone(&scheduler, &sequence, &free));
    }
    EXPECT_EQ(free, 0);
    EXPECT_EQ(scheduler.running(), sequences);
    Sequence late = MakeSequence(1, 1, 1);
    EXPECT_FALSE(AdmitAlone(&scheduler, &late, &free));
  }
}

// Where no sequence runs, there is nothing to wait for.
TEST(SchedulerTest, TheFirstSequenceIsAdmittedWhateverIsExpected) {
  Scheduler scheduler(SmallPool());
  Sequence first = MakeSequence(160, 16, 1), second = MakeSequence(160, 16, 1);
  int64_t free = 0;
  EXPECT_TRUE(AdmitAlone(&scheduler, &first, &free));
  free = 0;
  EXPECT_FALSE(AdmitAlone(&scheduler, &second, &free));
  scheduler.Release();
  EXPECT_TRUE(AdmitAlone(&scheduler, &second, &free));
}

TEST(SchedulerTest, ForestsShareAPassAndNeverReachBeyondTheEnd) {
  Scheduler scheduler(SmallPool());
  Sequence wide = MakeSequence(8, 100, 4);
  EXPECT_EQ(scheduler.ForestLimits(wide).max_nodes, 63);
  EXPECT_EQ(scheduler.ForestLimits(wide).max_depth, 99);
  EXPECT_EQ(scheduler.ForestLimits(MakeSequence(8, 1, 4)).max_depth, 0);
  std::vector<Sequence> running;
  for (int i = 0; i < 3; ++i) {
    running.push_back(MakeSequence(16, 16, 2));
    int64_t free = 100;
    ASSERT_TRUE(AdmitAlone(&scheduler, &running.back(), &free));
  }
  EXPECT_LE(3 * (scheduler.ForestLimits(running[0]).max_nodes + 1), 64);
  running[0].params.draft_width = 16;  // a width that a request asks for may fill a pass
  running[0].draft = decoding::DraftSizeOf(running[0].params);
  EXPECT_EQ(scheduler.ForestLimits(running[0]).max_nodes, 63);
  wide.params.plain = true;
  wide.draft = decoding::DraftSizeOf(wide.params);
  EXPECT_EQ(scheduler.ForestLimits(wide).max_depth, 0);
}

// Sequences that wait for blocks, in order of arrival.
class AdmissionTest : public ::testing::Test {
 protected:
  void Wait(uint64_t id, const std::string& client, int prompt, double weight = 1,
            int priority = 0) {
    waiting_.push_back(std::make_unique<Sequence>(MakeSequence(prompt, 16, 1)));
    Sequence& sequence = *waiting_.back();
    sequence.id = sequence.phase_order = sequence.arrival_order = id;
    sequence.priority = priority;
    sequence.client = client;
    sequence.client_weight = weight;
  }
  std::vector<uint64_t> Admit() {
    std::vector<Sequence*> waiting;
    for (const auto& sequence : waiting_) waiting.push_back(sequence.get());
    std::vector<uint64_t> ids;
    const auto needs = [&](const Sequence& one) { return scheduler_.BlocksBound(one); };
    for (Sequence* sequence : scheduler_.AdmitByTurns(waiting, {free_, needs})) {
      ids.push_back(sequence->id);
      free_ -= needs(*sequence);
      auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                [&](const auto& one) { return one.get() == sequence; });
      running_.push_back(std::move(*place));
      waiting_.erase(place);
    }
    EXPECT_GE(free_, 0);
    return ids;
  }
  void EndOldest() {
    scheduler_.Release();
    free_ += scheduler_.BlocksBound(*running_.front());
    running_.pop_front();
  }
  void Cancel(uint64_t id) {
    std::erase_if(waiting_, [id](const auto& one) { return one->id == id; });
  }

  Scheduler scheduler_{SmallPool()};
  int64_t free_ = 100;
  std::deque<std::unique_ptr<Sequence>> waiting_, running_;
};

TEST_F(AdmissionTest, ClientsTakeTurns) {
  for (uint64_t id = 1; id <= 4; ++id) Wait(id, "a", 32);
  for (uint64_t id = 5; id <= 6; ++id) Wait(id, "b", 32);
  EXPECT_THAT(Admit(), ElementsAre(1, 5, 2, 6, 3, 4));
}

// Each needs about a fifth of the pool.
TEST_F(AdmissionTest, ClientsHaveThePoolByWeight) {
  for (uint64_t id = 1; id <= 40; ++id) Wait(id, "a", 160);
  for (uint64_t id = 41; id <= 80; ++id) Wait(id, "b", 160, 3);
  int of_b = 0;
  std::vector<uint64_t> admitted = Admit();
  while (admitted.size() < 40) {
    EndOldest();
    for (const uint64_t id : Admit()) admitted.push_back(id);
  }
  for (const uint64_t id : admitted) of_b += id > 40;
  EXPECT_NEAR(of_b, 30, 1);
}

// What running sequences of others are expected to take does not hold up a client's first sequence.
TEST_F(AdmissionTest, ANewcomerNeedNotWaitForWhatOthersMayTake) {
  for (uint64_t id = 1; id <= 5; ++id) Wait(id, "a", 160);
  EXPECT_EQ(Admit().size(), 5u);
  Wait(6, "a", 160);
  Wait(7, "b", 160);
  Wait(8, "b", 160);
  std::vector<Sequence*> waiting, running;
  for (const auto& sequence : waiting_) waiting.push_back(sequence.get());
  for (const auto& sequence : running_) running.push_back(sequence.get());
  const auto needs = [&](const Sequence& one) { return scheduler_.BlocksBound(one); };
  const std::vector<Sequence*> admitted =
      scheduler_.AdmitByTurns(waiting, {0, needs, /*unclaimed=*/50, running});
  ASSERT_EQ(admitted.size(), 1u);
  EXPECT_EQ(admitted[0]->id, 7u);
}

TEST_F(AdmissionTest, LowerValuesOfPriorityGoFirst) {
  Wait(1, "a", 32, 1, /*priority=*/5);
  Wait(2, "a", 32);
  Wait(3, "b", 32, 1, /*priority=*/-1);
  Wait(4, "b", 32);
  EXPECT_THAT(Admit(), ElementsAre(3, 2, 4, 1));
}

// The pool is full with sequences of priority 0, and there are always some that wait.
TEST_F(AdmissionTest, AStreamOfABetterPriorityLeavesAnEighth) {
  uint64_t last = 0;
  for (; last < 20;) Wait(++last, "a", 160);
  for (uint64_t id = 1000; id < 1010; ++id) Wait(id, "b", 160, 1, /*priority=*/1);
  for (; last < 40;) Wait(2000 + ++last, "a", 160);  // these come later
  std::vector<uint64_t> admitted = Admit();
  while (admitted.size() < 100) {
    EndOldest();
    Wait(2000 + ++last, "a", 160);
    for (const uint64_t id : Admit()) admitted.push_back(id);
  }
  const auto outranked = [](uint64_t id) { return id >= 1000 && id < 1010; };
  // Those that came before are owed nothing.
  EXPECT_TRUE(std::none_of(admitted.begin(), admitted.begin() + 20, outranked));
  EXPECT_NEAR(std::count_if(admitted.begin(), admitted.end(), outranked), 80.0 / 9, 1);
}

// A sequence that needs nearly the whole pool waits for a small one. Others come and go, so that
// one always runs.
class HugeSequenceTest : public AdmissionTest {
 protected:
  // Until no other is admitted. Returns the blocks of those that passed.
  int64_t LetOthersPass() {
    const int64_t small = scheduler_.BlocksBound(MakeSequence(32, 16, 1));
    Wait(1, "b", 32);
    Wait(2, "a", 1400);
    EXPECT_GT(scheduler_.BlocksBound(*waiting_.back()), 100 - small);
    EXPECT_THAT(Admit(), ElementsAre(1));
    int64_t passed = 0;
    for (last_ = 3;; ++last_) {  // of another client and of its own
      Wait(last_, last_ % 2 == 0 ? "a" : "b", 32);
      const std::vector<uint64_t> admitted = Admit();
      EndOldest();
      if (admitted.empty() || passed > 1000) break;
      EXPECT_THAT(admitted, ElementsAre(last_));
      passed += small;
    }
    EXPECT_LT(passed, 100 + small);
    return passed;
  }
  uint64_t last_ = 0;
};

TEST_F(HugeSequenceTest, OthersPassItButNotForever) {
  EXPECT_GE(LetOthersPass(), 100);
  EXPECT_THAT(Admit(), ElementsAre(2));
  EndOldest();
  EXPECT_THAT(Admit(), ElementsAre(last_));
}

TEST_F(HugeSequenceTest, WhenItIsCancelledTheOthersGoOn) {
  LetOthersPass();
  Cancel(2);
  EXPECT_THAT(Admit(), ElementsAre(last_));
}

}  // namespace
}  // namespace coppice::worker
