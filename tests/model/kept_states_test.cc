// States go where K and V of their token go: from scratch to the prefix, to other sequences by the
// prefix cache, and with the beginning of a block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "model/model_runner.h"
#include "tests/model/runner_ranks.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

using State = std::vector<uint16_t>;

constexpr int kIds = 96, kColumns = 24;

std::vector<TokenId> Text(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * 31 + 7 * i + 5) % kIds);
  return tokens;
}

class KeptStatesTest : public ::testing::TestWithParam<int> {
 protected:
  explicit KeptStatesTest(const char* family = "llama3") {
    const test::TinyLlama target = test::MakeTinyFamily(family, {.vocab = kIds});
    test::WriteTinyLlama(target, dir_.path());
    test::WriteTinyLlama(test::MakeTinyEagle3(target, {.hidden = kColumns}), draft_dir_.path());
  }
  // Rank 0 alone is told of the draft.
  ModelRunnerOptions Options(int rank) const {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    if (rank == 0) options.states_for = draft_dir_.path();
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    options.max_rows = 64;
    return options;
  }
  void OnRanks(const std::function<void(ModelRunner*)>& body) const {
    RunOnRanks(
        GetParam(), [&](int rank) { return Options(rank); },
        [&](ModelRunner* runner, QueuedPlans*) { body(runner); });
  }

  test::TempDir dir_, draft_dir_;
};

// A sequence on rank 0.
class Reader {
 public:
  Reader(ModelRunner* runner, std::vector<TokenId> prompt)
      : runner_(runner), blocks_(runner->blocks()), prompt_(std::move(prompt)) {
    handle = blocks_->Open(prompt_, &cached);
  }
  ~Reader() { blocks_->Close(handle); }

  // Computes the prompt up to token `end`, in chunks.
  void ReadPrompt(int end) {
    while (blocks_->prefix_length(handle) < end) {
      const int begin = blocks_->prefix_length(handle);
      const auto chunk = absl::MakeConstSpan(prompt_).subspan(begin, std::min(19, end - begin));
      StepBuilder step = runner_->NewStep();
      const auto slots = blocks_->AppendPrefix(handle, chunk);
      ASSERT_TRUE(slots.ok()) << slots.status();
      step.AddPrefixRows(handle, chunk, *slots);
      RunStep(runner_, std::move(step));
    }
  }
  int32_t Slot(int position) const {
    return blocks_->block_table(handle)[position / kBlockSize] * kBlockSize + position % kBlockSize;
  }
  std::vector<State> At(const std::vector<int32_t>& slots) const {
    std::vector<uint16_t> values(slots.size() * kColumns);
    const absl::Status status = runner_->ReadStates(slots, values.data());
    EXPECT_TRUE(status.ok()) << status;
    std::vector<State> states;
    for (size_t i = 0; i < slots.size(); ++i)
      states.emplace_back(values.begin() + i * kColumns, values.begin() + (i + 1) * kColumns);
    return states;
  }
  // Of the tokens [begin, end) of the prefix.
  std::vector<State> OfPrefix(int begin, int end) const {
    std::vector<int32_t> slots;
    for (int position = begin; position < end; ++position) slots.push_back(Slot(position));
    return At(slots);
  }

  SequenceHandle handle = -1;
  int cached = 0;

 private:
  ModelRunner* const runner_;
  BlockManager* const blocks_;
  const std::vector<TokenId> prompt_;
};

std::vector<State> Part(const std::vector<State>& states, int begin, int end) {
  return {states.begin() + begin, states.begin() + end};
}

TEST_P(KeptStatesTest, GoWithTheirTokens) {
  const std::vector<TokenId> text = Text(60);
  OnRanks([&](ModelRunner* runner) {
    BlockManager* const blocks = runner->blocks();
    ASSERT_EQ(runner->state_columns(), kColumns);
    std::vector<State> expected;  // of a sequence that is read as a prompt
    {
      Reader plain(runner, Text(90));
      plain.ReadPrompt(90);
      expected = plain.OfPrefix(0, 90);
      ASSERT_NE(expected[5], expected[6]);
    }
    // Another beginning, so that nothing comes from the cache: the text behind one more token.
    std::vector<TokenId> shifted = {90};
    shifted.insert(shifted.end(), text.begin(), text.end());
    Reader first(runner, {shifted.begin(), shifted.begin() + 41});
    ASSERT_EQ(first.cached, 0);
    first.ReadPrompt(40);
    StepBuilder step = runner->NewStep();
    const auto add = [&](KvNode parent, TokenId token) {
      const KvNode node = *blocks->AddNode(first.handle, parent, token);
      step.AddNodeRow(first.handle, node, token, RowNeed());
      return node;
    };
    const KvNode root = add(kPrefixEnd, shifted[40]);
    add(root, 3);
    const KvNode second = add(root, shifted[41]), third = add(second, shifted[42]);
    add(second, 4);
    RunStep(runner, std::move(step));
    std::vector<int32_t> of_nodes;
    for (const KvNode node : {root, second, third})
      of_nodes.push_back(blocks->slot(first.handle, node));
    std::vector<State> states = first.OfPrefix(0, 40);
    const std::vector<State> of_path = first.At(of_nodes);
    states.insert(states.end(), of_path.begin(), of_path.end());

    ASSERT_EQ(*blocks->Commit(first.handle, {{third}}, runner->commits()), 3);
    ASSERT_FALSE(runner->commits()->empty());
    EXPECT_EQ(first.OfPrefix(0, 43), states) << "before the copies are done";
    step = runner->NewStep();
    const KvNode next = *blocks->AddNode(first.handle, kPrefixEnd, shifted[43]);
    step.AddNodeRow(first.handle, next, shifted[43], RowNeed());
    RunStep(runner, std::move(step));
    ASSERT_TRUE(runner->commits()->empty());
    EXPECT_EQ(first.OfPrefix(0, 43), states) << "after";

    // As if the whole text were a prompt.
    Reader whole(runner, shifted);
    EXPECT_EQ(whole.cached, 32);
    EXPECT_EQ(whole.OfPrefix(0, 32), Part(states, 0, 32)) << "from the cache";
    whole.ReadPrompt(61);
    EXPECT_EQ(whole.OfPrefix(0, 43), states);

    // A prompt that differs from token 57 on, in the middle of a block of the first text.
    std::vector<TokenId> other = Text(57);
    other.insert(other.end(), {1, 2, 3});
    Reader beginning(runner, other);
    ASSERT_EQ(beginning.cached, 48);
    ASSERT_EQ(blocks->AdoptBeginning(beginning.handle, other, runner->commits()), 9);
    EXPECT_EQ(beginning.OfPrefix(0, 57), Part(expected, 0, 57)) << "before the copies are done";
    beginning.ReadPrompt(60);
    EXPECT_EQ(beginning.OfPrefix(0, 57), Part(expected, 0, 57)) << "after";
    EXPECT_NE(beginning.OfPrefix(57, 60), Part(expected, 57, 60));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, KeptStatesTest, ::testing::Values(1, 2));

float Value(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Ranks sum in another order, so a value may be rounded to the next one.
TEST_F(KeptStatesTest, AreTheSameOnTwoRanksAsOnOne) {
  std::vector<State> states[2];
  for (const int ranks : {1, 2}) {
    RunOnRanks(
        ranks, [&](int rank) { return Options(rank); },
        [&](ModelRunner* runner, QueuedPlans*) {
          Reader reader(runner, Text(40));
          reader.ReadPrompt(40);
          states[ranks - 1] = reader.OfPrefix(0, 40);
        });
  }
  ASSERT_EQ(states[0].size(), 40u);
  ASSERT_EQ(states[1].size(), 40u);
  for (int row = 0; row < 40; ++row) {
    for (int c = 0; c < kColumns; ++c) {
      const float alone = Value(states[0][row][c]);
      ASSERT_NEAR(Value(states[1][row][c]), alone, std::fabs(alone) / 128 + 1e-4)
          << "row " << row << ", column " << c;
    }
  }
}

class KeptStatesOfWindowsTest : public KeptStatesTest {
 protected:
  KeptStatesOfWindowsTest() : KeptStatesTest("gemma3") {}
};

// No rank gives pages back, also if rank 0 alone knows why.
TEST_P(KeptStatesOfWindowsTest, StayForAllTokens) {
  OnRanks([&](ModelRunner* runner) {
    EXPECT_EQ(runner->page_map().groups(), 0);
    std::vector<State> states;
    for (int round = 0; round < 2; ++round) {
      Reader reader(runner, Text(60));
      EXPECT_EQ(reader.cached, round == 0 ? 0 : 48);
      reader.ReadPrompt(60);
      if (round == 0) states = reader.OfPrefix(0, 60);
      EXPECT_EQ(reader.OfPrefix(0, 60), states);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, KeptStatesOfWindowsTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace coppice::model
