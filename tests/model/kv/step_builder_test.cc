// The rows of a plan, from the tries of two sequences: positions, slots and chains, segment by
// segment. No model runs.
#include "model/kv/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace coppice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr int kVocab = 50;

std::vector<TokenId> Tokens(int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

class StepBuilderTest : public ::testing::Test {
 protected:
  SequenceHandle Open() { return blocks_.Open({}, nullptr); }
  std::vector<int32_t> Append(SequenceHandle sequence, int count) {
    return blocks_.AppendPrefix(sequence, Tokens(count)).value();
  }
  KvNode Add(SequenceHandle sequence, KvNode parent, TokenId token) {
    return blocks_.AddNode(sequence, parent, token).value();
  }
  std::vector<int32_t> Slots(SequenceHandle sequence, const std::vector<KvNode>& nodes) const {
    std::vector<int32_t> slots;
    for (const KvNode node : nodes) slots.push_back(blocks_.slot(sequence, node));
    return slots;
  }
  static std::vector<int32_t> Chain(const StepPlan& plan, int row) {
    return {plan.chain.begin() + plan.chain_begin[row],
            plan.chain.begin() + plan.chain_begin[row + 1]};
  }

  BlockManager blocks_{{.num_blocks = 20, .prefix_cache = false}};
  StepBuilder step_{&blocks_, kVocab};
};

TEST_F(StepBuilderTest, PrefixRowsStandAtTheEndOfThePrefix) {
  const SequenceHandle sequence = Open();
  Append(sequence, 18);
  const std::vector<int32_t> slots = Append(sequence, 3);
  step_.AddPrefixRows(sequence, Tokens(3), slots);
  const StepPlan plan = step_.Take();
  EXPECT_THAT(plan.token, ElementsAre(1, 2, 3));
  EXPECT_THAT(plan.position, ElementsAre(18, 19, 20));
  EXPECT_THAT(plan.slot, ElementsAreArray(slots));
  EXPECT_THAT(plan.chain, IsEmpty());
  EXPECT_THAT(plan.needs, IsEmpty());
  ASSERT_EQ(plan.segments.size(), 1u);
  EXPECT_EQ(plan.segments[0].prefix_len, 21);
  EXPECT_THAT(plan.table, ElementsAreArray(blocks_.block_table(sequence)));
  EXPECT_EQ(plan.table.size(), 2u);  // of 16 tokens each
}

// The position of a node is the number of tokens before it, the row of a node sees itself and the
// nodes above it, and the prefix in full.
TEST_F(StepBuilderTest, NodeRowsFollowTheirParents) {
  const SequenceHandle sequence = Open();
  Append(sequence, 21);
  const KvNode root = Add(sequence, kPrefixEnd, 30), other = Add(sequence, kPrefixEnd, 31);
  const KvNode left = Add(sequence, root, 32), right = Add(sequence, root, 33);
  const KvNode deep = Add(sequence, right, 34);
  const std::vector<KvNode> nodes = {root, other, left, right, deep};
  RowNeed need;
  need.count = 7;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto token = static_cast<TokenId>(30 + i);
    if (i == 1) {
      step_.AddNodeRow(sequence, nodes[i], token);
    } else {
      EXPECT_EQ(step_.AddNodeRow(sequence, nodes[i], token, need), i < 1 ? 0 : i - 1);
    }
  }
  const StepPlan plan = step_.Take();
  EXPECT_THAT(plan.token, ElementsAre(30, 31, 32, 33, 34));
  EXPECT_THAT(plan.position, ElementsAre(21, 21, 22, 22, 23));
  EXPECT_THAT(plan.slot, ElementsAreArray(Slots(sequence, nodes)));
  const std::vector<std::vector<KvNode>> chains = {
      {root}, {other}, {root, left}, {root, right}, {root, right, deep}};
  for (int row = 0; row < 5; ++row) {
    EXPECT_THAT(Chain(plan, row), ElementsAreArray(Slots(sequence, chains[row]))) << row;
    EXPECT_EQ(plan.prefix_length(row), 21) << row;
  }
  ASSERT_EQ(plan.needs.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(plan.needs[i].row, i == 0 ? 0 : i + 1);
    EXPECT_EQ(plan.needs[i].count, 7);
  }
}

// The rows of a block see each other and what is above; each rotates by its own position. Its own
// slot comes last.
TEST_F(StepBuilderTest, RowsOfABlockSeeEachOther) {
  const SequenceHandle sequence = Open();
  Append(sequence, 21);
  const KvNode above = Add(sequence, kPrefixEnd, 30);
  step_.AddNodeRow(sequence, above, 30);
  const KvNode a = Add(sequence, above, 9), b = Add(sequence, a, 9), c = Add(sequence, b, 9);
  RowNeed need;
  need.count = 5;
  EXPECT_EQ(step_.AddBlockRows(sequence, {a, b, c}, {31, 8, 8}, {need, need}), 0);
  const KvNode other = Add(sequence, kPrefixEnd, 33);
  EXPECT_EQ(step_.AddNodeRow(sequence, other, 33, RowNeed()), 2);
  const StepPlan plan = step_.Take();
  EXPECT_THAT(plan.token, ElementsAre(30, 31, 8, 8, 33));
  EXPECT_THAT(plan.position, ElementsAre(21, 24, 24, 24, 21));
  EXPECT_THAT(plan.rope_position, ElementsAre(21, 22, 23, 24, 21));
  EXPECT_THAT(plan.slot, ElementsAreArray(Slots(sequence, {above, a, b, c, other})));
  EXPECT_THAT(Chain(plan, 1), ElementsAreArray(Slots(sequence, {above, b, c, a})));
  EXPECT_THAT(Chain(plan, 2), ElementsAreArray(Slots(sequence, {above, a, c, b})));
  EXPECT_THAT(Chain(plan, 3), ElementsAreArray(Slots(sequence, {above, a, b, c})));
  ASSERT_EQ(plan.needs.size(), 3u);
  EXPECT_EQ(plan.needs[0].row, 2);
  EXPECT_EQ(plan.needs[1].row, 3);
  EXPECT_EQ(plan.needs[1].count, 5);
}

TEST_F(StepBuilderTest, EverySequenceHasASegment) {
  const SequenceHandle first = Open(), second = Open();
  const std::vector<int32_t> slots = Append(first, 4);
  step_.AddPrefixRows(first, Tokens(4), slots);
  Append(second, 17);
  const KvNode root = Add(second, kPrefixEnd, 30);
  const KvNode child = Add(second, root, 31);
  step_.AddNodeRow(second, root, 30);
  step_.AddNodeRow(second, child, 31);
  const StepPlan plan = step_.Take();
  EXPECT_THAT(plan.position, ElementsAre(0, 1, 2, 3, 17, 18));
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_EQ(plan.segments[0].first_row, 0);
  EXPECT_EQ(plan.segments[0].rows, 4);
  EXPECT_EQ(plan.segments[0].prefix_len, 4);
  EXPECT_EQ(plan.segments[1].first_row, 4);
  EXPECT_EQ(plan.segments[1].rows, 2);
  EXPECT_EQ(plan.segments[1].prefix_len, 17);
  EXPECT_THAT(plan.table_begin, ElementsAre(0, 1, 3));
  EXPECT_EQ(plan.table[0], blocks_.block_table(first)[0]);
  EXPECT_EQ(plan.table[1], blocks_.block_table(second)[0]);
  EXPECT_EQ(plan.table[2], blocks_.block_table(second)[1]);
}

TEST_F(StepBuilderTest, ABiasKeepsTheTokensOfTheVocabulary) {
  const auto first = step_.AddBias({{0, 1.5}, {kVocab, 2.0}, {-1, 2.0}, {kVocab - 1, -3.0}});
  const auto second = step_.AddBias({{7, 0.5}});
  const StepPlan plan = step_.Take();
  EXPECT_THAT(plan.bias,
              ElementsAre(std::pair(0, 1.5), std::pair(kVocab - 1, -3.0), std::pair(7, 0.5)));
  EXPECT_EQ(first.begin, 0);
  EXPECT_EQ(first.end, 2);
  EXPECT_EQ(second.begin, 2);
  EXPECT_EQ(second.end, 3);
}

}  // namespace
}  // namespace coppice::model
