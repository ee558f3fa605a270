// Candidate lists of several ranks, each made by the rank's device of its own tokens: those that
// ranks of the CPU backend make, bit for bit, and they decide as those of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

#include "sampling/candidate_list.h"
#include "tests/kernels/cuda/list_needs.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/row_pass.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::kernels {
namespace {

using testing::Contains;
using testing::ElementsAreArray;

// Gives this rank's part of the logits, in the backend's memory, to Select.
struct ShardPass : Pass {
  ShardPass(TestBackend* backend, const std::vector<float>& logits, int64_t vocab_size, int rank,
            int ranks)
      : part(logits, vocab_size, rank, ranks),
        tensor(
            backend->Put(part.mine.empty() ? logits : part.mine, part.shard.size(), DType::kF32)) {}
  void Body(Ops*) override {}
  void Head(Ops* ops) override { ops->Select(tensor, part.shard.begin, part.vocab); }

  RowPass part;
  Tensor tensor;
};

// The lists of a step, each with its tokens; rows that came whole have none.
std::vector<CandidateRow> ListsOf(const StepRows& rows, size_t needs) {
  std::vector<CandidateRow> lists(needs);
  for (size_t i = 0; i < needs; ++i) {
    if (const CandidateRow* row = rows.Listed(static_cast<int>(i))) lists[i] = *row;
  }
  return lists;
}

class RankListsTest : public testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }

  // What the leader of so many ranks of this kind gets.
  static std::vector<CandidateRow> Run(const std::string& kind, int ranks, const StepPlan& plan,
                                       const std::vector<float>& logits, int64_t vocab) {
    std::vector<CandidateRow> lists;
    test::RunRanks(ranks, [&](comm::Communicator* communicator) {
      const int rank = communicator->rank();
      if (kind == "cpu") {
        ThreadTeam threads(1);
        const auto backend =
            MakeBackend({"cpu", &threads, communicator, /*always_list=*/true}).value();
        RowPass pass(logits, vocab, rank, ranks);
        const StepRows* rows = RunStep(backend.get(), plan, &pass).value();
        if (rank == 0) lists = ListsOf(*rows, plan.needs.size());
        return;
      }
      const auto backend = TestBackend::MakeRank(communicator, /*always_list=*/true);
      ShardPass pass(backend.get(), logits, vocab, rank, ranks);
      const StepRows* rows = RunStep(backend->get(), plan, &pass).value();
      ASSERT_EQ(rows == nullptr, rank != 0);
      if (rank == 0) lists = ListsOf(*rows, plan.needs.size());
    });
    return lists;
  }

  static void ExpectSame(const StepPlan& plan, const std::vector<float>& logits, int64_t vocab) {
    const auto got = Run("cuda", ranks(), plan, logits, vocab);
    const auto want = Run("cpu", ranks(), plan, logits, vocab);
    const auto alone = Run("cpu", 1, plan, logits, vocab);
    ASSERT_EQ(got.size(), plan.needs.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "need " << i << " of " << vocab << " tokens");
      ExpectSameList(plan.needs[i], got[i], want[i]);
      ExpectDecidesAs(plan.needs[i], got[i], alone[i]);
    }
  }

  // The sums and the largest logits are those of one rank. Noisy and raw lists may hold more.
  static void ExpectDecidesAs(const RowNeed& need, const CandidateRow& got,
                              const CandidateRow& alone) {
    if (alone.bad_token >= 0 || alone.overflow || got.overflow) return;
    if (need.raw_sums) ExpectSameSums(got.raw_sums, alone.raw_sums);
    for (const TokenId token : alone.raw.tokens) EXPECT_THAT(got.raw.tokens, Contains(token));
    if (need.form == RowNeed::Form::kTop) {
      CandidateRow same = got;
      same.raw = alone.raw;
      return ExpectSameList(need, same, alone);
    }
    if (need.sums) ExpectSameSums(got.sums, alone.sums);
    ASSERT_EQ(got.lists.size(), alone.lists.size());
    for (size_t l = 0; l < alone.lists.size(); ++l) {
      for (const TokenId token : alone.lists[l].tokens)
        EXPECT_THAT(got.lists[l].tokens, Contains(token)) << "list " << l;
    }
  }
};

// 1003, 9001: no shard is a multiple of anything, and those of 9001 and 32003 end inside of a
// piece.
TEST_P(RankListsTest, EveryFormInOneStep) {
  for (const int64_t vocab : {1000, 1003, 9001, 32003}) {
    for (uint64_t seed = 0; seed < 2; ++seed)
      ExpectSame(MixedPlan(seed), RandomLogits(12 * vocab, seed + vocab), vocab);
  }
}

// Ties at the border of a list and between ranks, few finite tokens, a rank without any.
TEST_P(RankListsTest, TiesAndTokensOfOneRankAlone) {
  constexpr int64_t kVocab = 9001;
  StepPlan plan = PlanOfRows(5);
  std::vector<float> logits;
  for (int row = 0; row < 5; ++row) {
    plan.needs.push_back(row == 4 ? GumbelNeed(row, 1, 1, 0x3) : Top(row, 8, 1, true));
    std::vector<float> values = RandomLogits(kVocab, row);
    for (int v = 0; v < kVocab; ++v) {
      if (row == 0) values[v] = v % 400 == 7 ? 3.0f : -1.0f;             // ties on every rank
      if (row == 1) values[v] = v % 4000 == 1 ? 2.0f : -kInfiniteLogit;  // three finite tokens
      if (row == 2)
        values[v] = v > 8990 ? static_cast<float>(v) : -kInfiniteLogit;  // of the last rank
      if (row == 3) values[v] = -kInfiniteLogit;
      if (row == 4) values[v] = v < 5 ? 1.0f : -kInfiniteLogit;  // of the first rank
    }
    logits.insert(logits.end(), values.begin(), values.end());
  }
  ExpectSame(plan, logits, kVocab);
}

// The lowest of all ranks is named, whichever rank has it.
TEST_P(RankListsTest, BadLogitsAreNamed) {
  constexpr int64_t kVocab = 20011;
  StepPlan plan = PlanOfRows(3);
  plan.needs = {Top(0, 4, 1, true), GumbelNeed(1, 1, 1, 0x5), Top(2, 4, 1, true)};
  std::vector<float> logits = RandomLogits(3 * kVocab, 3);
  logits[0 * kVocab + 20010] = std::numeric_limits<float>::quiet_NaN();
  logits[1 * kVocab + 20000] = std::numeric_limits<float>::quiet_NaN();
  logits[1 * kVocab + 9000] = kInfiniteLogit;
  ExpectSame(plan, logits, kVocab);
}

// A row that is fetched after its list; others stay lists, and a row that came whole stays whole.
TEST_P(RankListsTest, FetchedRowsAreJoinedFromTheDevices) {
  constexpr int64_t kVocab = 5003;
  const std::vector<float> logits = RandomLogits(5 * kVocab, 9);
  StepPlan plan = TopPlan(5, 4);
  plan.needs[3] = RowNeed();
  plan.needs[3].row = 3;
  test::RunRanks(ranks(), [&](comm::Communicator* communicator) {
    const auto backend = TestBackend::MakeRank(communicator, /*always_list=*/true);
    ShardPass pass(backend.get(), logits, kVocab, communicator->rank(), ranks());
    for (int step = 0; step < 2; ++step) {  // the memory of the rows serves the next step, too
      const StepRows* rows = RunStep(backend->get(), plan, &pass).value();
      for (const std::vector<int32_t>& needs :
           {std::vector<int32_t>{0}, std::vector<int32_t>{1, 3, 4}, std::vector<int32_t>{0, 4}}) {
        StepPlan fetch;
        fetch.fetch = needs;
        ASSERT_EQ(RunStep(backend->get(), fetch, nullptr).value(), rows);
      }
      if (rows == nullptr) continue;
      for (const int need : {0, 1, 3, 4})
        EXPECT_THAT(rows->Whole(need), ElementsAreArray(pass.part.Row(need))) << need;
      ASSERT_NE(rows->Listed(2), nullptr);
      ExpectListsTop(*rows->Listed(2), pass.part.Row(2), 4);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankListsTest, testing::Values(2, 3, 4, 8));

}  // namespace
}  // namespace coppice::kernels
