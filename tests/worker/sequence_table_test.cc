#include "worker/sequence_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "decoding/method.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Sequence> WithId(uint64_t id) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  return sequence;
}

std::vector<uint64_t> IdsIn(const SequenceTable& table, SequencePhase phase) {
  std::vector<uint64_t> ids;
  for (const Sequence* sequence : table.In(phase)) ids.push_back(sequence->id);
  return ids;
}

TEST(SequenceTableTest, KeepsTheOrderOfArrivalInEachPhase) {
  SequenceTable table;
  for (uint64_t id : {9, 3, 5}) ASSERT_NE(table.Insert(WithId(id)), nullptr);
  EXPECT_THAT(IdsIn(table, SequencePhase::kWaiting), ElementsAre(9, 3, 5));
  table.Move(table.Find(5), SequencePhase::kReady);
  table.Move(table.Find(9), SequencePhase::kReady);
  EXPECT_THAT(IdsIn(table, SequencePhase::kReady), ElementsAre(5, 9));
  EXPECT_THAT(IdsIn(table, SequencePhase::kWaiting), ElementsAre(3));
  table.Move(table.Find(5), SequencePhase::kReady);  // moved again, so it is last
  EXPECT_THAT(IdsIn(table, SequencePhase::kReady), ElementsAre(9, 5));
  EXPECT_EQ(table.First(SequencePhase::kReady)->id, 9u);
  EXPECT_EQ(table.First(SequencePhase::kPrefill), nullptr);
  EXPECT_EQ(table.Count(SequencePhase::kReady), 2);
}

TEST(SequenceTableTest, RefusesASecondSequenceOfOneId) {
  SequenceTable table;
  Sequence* first = table.Insert(WithId(4));
  EXPECT_EQ(table.Insert(WithId(4)), nullptr);
  EXPECT_EQ(table.Find(4), first);
  table.Erase(4);
  EXPECT_EQ(table.Find(4), nullptr);
  EXPECT_TRUE(table.empty());
  EXPECT_THAT(IdsIn(table, SequencePhase::kWaiting), IsEmpty());
}

TEST(SequenceTableTest, CountsClientsThatHaveSequences) {
  SequenceTable table;
  for (uint64_t id : {1, 2, 3}) {
    std::unique_ptr<Sequence> sequence = WithId(id);
    sequence->client = id == 3 ? "b" : "a";
    table.Insert(std::move(sequence));
  }
  EXPECT_EQ(table.clients(), 2);
  table.Move(table.Find(2), SequencePhase::kReady);
  table.Erase(1);
  EXPECT_EQ(table.clients(), 2);
  table.Erase(2);
  EXPECT_EQ(table.clients(), 1);
  EXPECT_THAT(IdsIn(table, SequencePhase::kReady), IsEmpty());
  EXPECT_THAT(IdsIn(table, SequencePhase::kWaiting), ElementsAre(3));
}

// A sequence that waits has no rows. A known root needs none in a pass with a forest.
TEST(SequenceTableTest, CountsTheRowsOfAllThatRun) {
  SequenceTable table;
  for (uint64_t id : {1, 2, 3}) {
    Sequence* sequence = table.Insert(WithId(id));
    sequence->params.method = decoding::FindMethod("gumbel_coupling");
    sequence->decoder = *decoding::MakeBeamDecoder(sequence->params);
    ASSERT_EQ(sequence->decoder->roots().size(), 1u);
  }
  EXPECT_EQ(table.CountRows().plain, 0);
  table.Move(table.Find(1), SequencePhase::kReady);
  table.Move(table.Find(2), SequencePhase::kDrafting);
  table.Find(2)->known_roots.resize(1);
  table.Find(2)->known_roots[0].whole = {0.5f};
  EXPECT_EQ(table.CountRows().plain, 2);
  EXPECT_EQ(table.CountRows().roots, 1);
}

TEST(SequenceTableTest, CountsThoseWhoseDraftsWereAskedForTogether) {
  SequenceTable table;
  for (uint64_t id : {1, 2, 3, 4}) table.Insert(WithId(id));
  for (uint64_t id : {1, 2, 3, 4}) table.Find(id)->draft_step = 7;
  table.Insert(WithId(5))->draft_step = 6;
  table.Move(table.Find(5), SequencePhase::kDrafting);
  EXPECT_EQ(table.DraftsAskedIn(7).asked, 0);
  table.Move(table.Find(1), SequencePhase::kDrafting);
  table.Move(table.Find(2), SequencePhase::kReady);  // a plain round
  table.Move(table.Find(3), SequencePhase::kReady);
  table.Find(3)->draft_came = true;
  table.Move(table.Find(4), SequencePhase::kPrefill);
  EXPECT_EQ(table.DraftsAskedIn(7).asked, 2);
  EXPECT_EQ(table.DraftsAskedIn(7).due, 1);
  EXPECT_EQ(table.DraftsAskedIn(6).asked, 1);
}

TEST(SequenceTableTest, OnlyThoseThatAreDraftingHaveADeadline) {
  SequenceTable table;
  EXPECT_EQ(table.EarliestDraftDeadline(), std::numeric_limits<double>::infinity());
  for (uint64_t id : {1, 2, 3}) table.Insert(WithId(id))->draft_deadline_s = 10.0 - id;
  EXPECT_EQ(table.EarliestDraftDeadline(), std::numeric_limits<double>::infinity());
  table.Move(table.Find(1), SequencePhase::kDrafting);
  table.Move(table.Find(2), SequencePhase::kDrafting);
  EXPECT_EQ(table.EarliestDraftDeadline(), 8.0);
  table.Move(table.Find(2), SequencePhase::kReady);
  EXPECT_EQ(table.EarliestDraftDeadline(), 9.0);
}

}  // namespace
}  // namespace coppice::worker
