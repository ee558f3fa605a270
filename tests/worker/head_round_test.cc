// Whole rounds without sockets of every method, with drafts that take states of the target: an
// EAGLE-3 head and a block drafter. Reproducible methods give the text that they give without
// drafts, the others take what is proposed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"
#include "tests/testing/tiny_eagle3.h"

namespace coppice::worker {
namespace {

constexpr TokenId kEos = 2;

class HeadRoundTest : public ::testing::TestWithParam<test::MethodCase> {
 protected:
  HeadRoundTest() {
    const test::TinyLlama target = test::MakeTinyLlama({.layers = 4, .vocab = 24});
    test::WriteTinyLlama(target, target_.path());
    test::TinyEagle3Options head;
    for (int id = 0; id < 24; id += 1 + id % 2) head.ids.push_back(id);  // not all
    test::WriteTinyLlama(test::MakeTinyEagle3(target, head), head_.path());
    test::WriteTinyLlama(test::MakeTinyDFlash(target, {.markov_rank = 4}), blocks_.path());
  }
  void RunWith(const std::string& draft);
  test::TempDir target_, head_, blocks_;
};

void HeadRoundTest::RunWith(const std::string& draft) {
  test::CheckedReplica replica(target_.path(), draft);
  size_t drafted = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<TokenId> prompt;
    for (uint64_t i = 0; i < 1 + seed * 11; ++i)
      prompt.push_back(static_cast<TokenId>(3 + (seed * 31 + i * 17) % 21));
    const decoding::DecodingParams params = GetParam().Params(/*max_tokens=*/30, kEos, seed);
    const auto plain = replica.Decode(prompt, params, 0, 0);
    const auto with = replica.Decode(prompt, params, GetParam().DraftWidth(6), 3);
    ASSERT_FALSE(with.hypotheses.empty());
    for (const std::vector<TokenId>& forest : with.drafted) drafted += forest.size();
    if (!GetParam().method->reproducible) continue;
    ASSERT_EQ(plain.hypotheses.size(), with.hypotheses.size());
    for (size_t i = 0; i < plain.hypotheses.size(); ++i) {
      EXPECT_EQ(plain.hypotheses[i].tokens, with.hypotheses[i].tokens);
      EXPECT_EQ(plain.hypotheses[i].joint_log_probability,
                with.hypotheses[i].joint_log_probability);
    }
  }
  EXPECT_GT(drafted, 50u);
  EXPECT_EQ(replica.target_blocks_used(), 0);
  EXPECT_EQ(replica.draft_blocks_used(), 0);
}

TEST_P(HeadRoundTest, RunsWithAHead) { RunWith(head_.path()); }

TEST_P(HeadRoundTest, RunsWithADrafterOfBlocks) { RunWith(blocks_.path()); }

INSTANTIATE_TEST_SUITE_P(Methods, HeadRoundTest,
                         ::testing::ValuesIn(test::MethodCases([](const decoding::MethodRow& row) {
                           return row.form != decoding::DraftForm::kNone;
                         })),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace coppice::worker
