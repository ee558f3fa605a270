#include "worker/scheduler.h"

#include <gtest/gtest.h>

#include "decoding/method.h"

namespace coppice::worker {
namespace {

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
      width == 1 ? decoding::DecodingKind::kMultinomial : decoding::DecodingKind::kBeamSearch;
  sequence.params.method = decoding::FindMethod(width == 1 ? "pf_gumbel" : "certified");
  sequence.params.beam_width = width;
  sequence.params.max_tokens = max_tokens;
  sequence.draft = decoding::DraftSizeOf(sequence.params);
  sequence.decoder = *decoding::MakeBeamDecoder(sequence.params);
  return sequence;
}

TEST(SchedulerTest, RefusesWhatCanNeverFitAndNamesTheBlocks) {
  Scheduler scheduler(SmallPool());
  const absl::Status status = scheduler.CheckFits(MakeSequence(4000, 16, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("100"), std::string::npos) << status;
  EXPECT_TRUE(scheduler.CheckFits(MakeSequence(100, 16, 1)).ok());
}

TEST(SchedulerTest, RefusesMoreBeamsThanAPassHasRows) {
  Scheduler scheduler(SmallPool());
  const absl::Status status = scheduler.CheckFits(MakeSequence(8, 2, 65));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("65 beams"), std::string::npos) << status;
}

TEST(SchedulerTest, AdmitsUntilThePoolIsReservedAndAgainAfterARelease) {
  Scheduler scheduler(SmallPool());
  std::vector<Sequence> admitted;
  for (;;) {
    Sequence sequence = MakeSequence(160, 16, 1);
    if (!scheduler.Admit(&sequence)) break;
    admitted.push_back(std::move(sequence));
    ASSERT_LE(scheduler.reserved_blocks(), 100);
  }
  ASSERT_GE(admitted.size(), 2u);
  EXPECT_EQ(scheduler.running(), static_cast<int>(admitted.size()));
  scheduler.Release(&admitted.back());
  scheduler.Release(&admitted.back());  // a second release changes nothing
  Sequence next = MakeSequence(160, 16, 1);
  EXPECT_TRUE(scheduler.Admit(&next));
  EXPECT_EQ(scheduler.running(), static_cast<int>(admitted.size()));
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
    for (int i = 0; i < sequences; ++i) {
      Sequence sequence = MakeSequence(160, 16, 1);
      EXPECT_TRUE(scheduler.Admit(&sequence));
    }
    EXPECT_EQ(scheduler.reserved_blocks(), pool.kv_blocks);
    Sequence late = MakeSequence(1, 1, 1);
    EXPECT_FALSE(scheduler.Admit(&late));
  }
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
    ASSERT_TRUE(scheduler.Admit(&running.back()));
  }
  EXPECT_LE(3 * (scheduler.ForestLimits(running[0]).max_nodes + 1), 64);
  running[0].params.draft_width = 16;  // a width that a request asks for may fill a pass
  running[0].draft = decoding::DraftSizeOf(running[0].params);
  EXPECT_EQ(scheduler.ForestLimits(running[0]).max_nodes, 63);
  wide.params.plain = true;
  wide.draft = decoding::DraftSizeOf(wide.params);
  EXPECT_EQ(scheduler.ForestLimits(wide).max_depth, 0);
}

}  // namespace
}  // namespace coppice::worker
