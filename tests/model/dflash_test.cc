// The forward pass of drafters of blocks compared with the naive double-precision reference, and the
// bias of DSpark.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/element.h"
#include "model/kv/block_manager.h"
#include "model/kv/step_builder.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_dflash.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"

namespace coppice::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 96, kHidden = 32;

// [count][kHidden] values that bf16 holds.
std::vector<std::vector<double>> SomeStates(int count) {
  std::vector<std::vector<double>> states(count, std::vector<double>(kHidden));
  for (int t = 0; t < count; ++t) {
    for (int i = 0; i < kHidden; ++i) {
      const auto bits = sampling::Finalize(1000 * t + i + 5) >> 40;
      states[t][i] =
          kernels::Bf16ToFloat(kernels::FloatToBf16(static_cast<float>(bits) / (1 << 22) - 2));
    }
  }
  return states;
}

std::vector<uint16_t> Bf16(const std::vector<double>& state) {
  std::vector<uint16_t> bits;
  for (const double value : state) bits.push_back(kernels::FloatToBf16(static_cast<float>(value)));
  return bits;
}

// A drafter with the rows of one sequence: those of context tokens, which only their states matter
// to, and blocks below trie nodes.
class Drafted {
 public:
  explicit Drafted(const test::TinyDFlashOptions& options) : options_(options) {
    target_ = test::MakeTinyLlama({.layers = 4});
    draft_ = test::MakeTinyDFlash(target_, options);
    test::WriteTinyLlama(target_, target_dir_.path());
    test::WriteTinyLlama(draft_, dir_.path());
    LoadOptions load{.dir = dir_.path(), .max_rows = 64};
    load.target = target_dir_.path();
    auto loaded = LoadForTest(load);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) loaded_ = *std::move(loaded);
    sequence_ = blocks_.Open({}, nullptr);
  }

  ReferenceDFlash reference() const { return {draft_, target_}; }
  BlockManager& blocks() { return blocks_; }
  SequenceHandle sequence() const { return sequence_; }
  StepBuilder NewStep() {
    blocks_.EndRound();
    return {&blocks_, kVocab, kHidden};
  }
  void AddPrefix(absl::Span<const std::vector<double>> states, StepBuilder* step) {
    const std::vector<TokenId> tokens(states.size(), 7);  // which does not matter
    const auto slots = blocks_.AppendPrefix(sequence_, tokens);
    const int row = step->rows();
    step->AddPrefixRows(sequence_, tokens, *slots);
    for (size_t i = 0; i < states.size(); ++i)
      step->SetState(row + static_cast<int>(i), Bf16(states[i]));
  }
  KvNode AddContext(KvNode parent, TokenId token, const std::vector<double>& state,
                    StepBuilder* step) {
    const KvNode node = *blocks_.AddNode(sequence_, parent, token);
    step->AddNodeRow(sequence_, node, token);
    step->SetState(step->rows() - 1, Bf16(state));
    return node;
  }
  // The block of a root, with needs of all rows.
  void AddBlock(KvNode above, TokenId root, int rows, StepBuilder* step) {
    std::vector<KvNode> nodes;
    std::vector<TokenId> tokens(rows, options_.mask);
    tokens[0] = root;
    for (int row = 0; row < rows; ++row)
      nodes.push_back(*blocks_.AddNode(sequence_, row == 0 ? above : nodes.back(), kVocab));
    step->AddBlockRows(sequence_, nodes, tokens, std::vector<RowNeed>(rows));
  }
  std::vector<float> Run(StepBuilder* step) {
    auto logits = loaded_.Run(step->Take());
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }
  const LoadedModel& loaded() const { return loaded_; }

 private:
  const test::TinyDFlashOptions options_;
  test::TempDir dir_, target_dir_;
  test::TinyLlama target_, draft_;
  LoadedModel loaded_;
  BlockManager blocks_{{.num_blocks = kTestBlocks}};
  SequenceHandle sequence_ = -1;
};

std::vector<double> Joined(const std::vector<std::vector<double>>& rows) {
  std::vector<double> joined;
  for (const auto& row : rows) joined.insert(joined.end(), row.begin(), row.end());
  return joined;
}

struct Case {
  const char* name;
  test::TinyDFlashOptions options;
  double tolerance = 2e-5;  // relative to the largest logit
};
class DFlashCase : public testing::TestWithParam<Case> {};

// The context in two chunks and a part that came with the block, as in rounds of a request.
TEST_P(DFlashCase, LogitsOfABlockAreThoseOfTheReference) {
  Drafted drafted(GetParam().options);
  const auto states = SomeStates(40);
  StepBuilder prompt = drafted.NewStep();
  drafted.AddPrefix(absl::MakeConstSpan(states).first(21), &prompt);
  drafted.Run(&prompt);
  StepBuilder more = drafted.NewStep();
  drafted.AddPrefix(absl::MakeConstSpan(states).subspan(21, 16), &more);
  drafted.Run(&more);
  StepBuilder step = drafted.NewStep();
  KvNode node = kPrefixEnd;
  for (int t = 37; t < 40; ++t) node = drafted.AddContext(node, t, states[t], &step);
  const int rows = GetParam().options.block;
  drafted.AddBlock(node, /*root=*/11, rows, &step);
  const std::vector<float> logits = drafted.Run(&step);
  const auto expected = Joined(drafted.reference().BlockLogits(states, 11, rows));
  const double error = RelativeError(logits, expected);
  EXPECT_LT(error, GetParam().tolerance);
  RecordProperty("error", std::to_string(error));
}

INSTANTIATE_TEST_SUITE_P(
    Published, DFlashCase,
    testing::Values(Case{"DFlash", {}}, Case{"OneLayer", {.layers = 1}},
                    Case{"FiveLayersWithoutSharedHeads", {.layers = 5, .kv_heads = 4}},
                    Case{"OneKvHead", {.kv_heads = 1, .head_dim = 24}},
                    Case{"BlockOf16", {.block = 16}},
                    Case{"DSpark", {.block = 7, .markov_rank = 8, .dspark = true}},
                    Case{"DSparkWithItsEnds", {.dspark = true, .owns_ends = true}},
                    Case{"BF16", {.dtype = "BF16"}, 6e-2}),
    [](const auto& info) { return info.param.name; });

// Of several roots in one pass, and beside rows of a prompt.
TEST(DFlash, BlocksOfOnePassDoNotSeeEachOther) {
  Drafted drafted({});
  const auto states = SomeStates(12);
  StepBuilder step = drafted.NewStep();
  drafted.AddPrefix(absl::MakeConstSpan(states).first(8), &step);
  const KvNode shared = drafted.AddContext(kPrefixEnd, 1, states[8], &step);
  const KvNode one = drafted.AddContext(shared, 2, states[9], &step);
  const KvNode other = drafted.AddContext(shared, 3, states[10], &step);
  drafted.AddBlock(one, 20, 4, &step);
  drafted.AddBlock(other, 21, 6, &step);
  const std::vector<float> logits = drafted.Run(&step);
  std::vector<std::vector<double>> context(states.begin(), states.begin() + 10);
  auto expected = drafted.reference().BlockLogits(context, 20, 4);
  context[9] = states[10];
  for (const auto& row : drafted.reference().BlockLogits(context, 21, 6)) expected.push_back(row);
  EXPECT_LT(RelativeError(logits, Joined(expected)), 2e-5);
}

TEST(DFlash, TheBiasOfATokenIsTheProductOfItsRows) {
  const Drafted drafted({.markov_rank = 11, .dtype = "BF16"});
  const MarkovBias* const markov = drafted.loaded().parts().weights.markov.get();
  ASSERT_NE(markov, nullptr);
  const std::vector<TokenId> tokens = {3, 17, 95, 0};
  std::vector<float> logits = {1, -2, 0.5, 4};
  const std::vector<float> before = logits;
  markov->Add(29, tokens, absl::MakeSpan(logits));
  const std::vector<double> bias = drafted.reference().MarkovBias(29);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_NEAR(logits[i], before[i] + bias[tokens[i]], 1e-5);
}

}  // namespace
}  // namespace coppice::model
