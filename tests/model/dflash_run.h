// Passes of a tiny block drafter on one sequence, for comparison with the reference
// (reference_dflash.h): rows of context, to which only their states matter, and blocks below trie
// nodes. Shared by the tests of the backends.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/element.h"
#include "model/kv/block_manager.h"
#include "model/kv/step_builder.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_dflash.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"

namespace coppice::model {

inline constexpr int kDFlashVocab = 96, kDFlashHidden = 32;

// [count][kDFlashHidden] values that bf16 holds.
inline std::vector<std::vector<double>> SomeStates(int count) {
  std::vector<std::vector<double>> states(count, std::vector<double>(kDFlashHidden));
  for (int t = 0; t < count; ++t) {
    for (int i = 0; i < kDFlashHidden; ++i) {
      const auto bits = sampling::Finalize(1000 * t + i + 5) >> 40;
      states[t][i] =
          kernels::Bf16ToFloat(kernels::FloatToBf16(static_cast<float>(bits) / (1 << 22) - 2));
    }
  }
  return states;
}

inline std::vector<uint16_t> Bf16(const std::vector<double>& state) {
  std::vector<uint16_t> bits;
  for (const double value : state) bits.push_back(kernels::FloatToBf16(static_cast<float>(value)));
  return bits;
}

class Drafted {
 public:
  explicit Drafted(const test::TinyDFlashOptions& options, const std::string& backend = "cpu")
      : options_(options) {
    target_ = test::MakeTinyLlama({.layers = 4});
    draft_ = test::MakeTinyDFlash(target_, options);
    test::WriteTinyLlama(target_, target_dir_.path());
    test::WriteTinyLlama(draft_, dir_.path());
    LoadOptions load{.dir = dir_.path(), .max_rows = 64};
    load.target = target_dir_.path();
    auto loaded = LoadForTest(load, /*communicator=*/nullptr, /*threads=*/1, backend);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) loaded_ = *std::move(loaded);
    sequence_ = blocks_.Open({}, nullptr);
  }

  ReferenceDFlash reference() const { return {draft_, target_}; }
  BlockManager& blocks() { return blocks_; }
  SequenceHandle sequence() const { return sequence_; }
  StepBuilder NewStep() {
    blocks_.EndRound();
    return {&blocks_, kDFlashVocab, kDFlashHidden};
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
      nodes.push_back(*blocks_.AddNode(sequence_, row == 0 ? above : nodes.back(), kDFlashVocab));
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

inline std::vector<double> Joined(const std::vector<std::vector<double>>& rows) {
  std::vector<double> joined;
  for (const auto& row : rows) joined.insert(joined.end(), row.begin(), row.end());
  return joined;
}

// The relative error of the logits of a block whose context came in two chunks of a prompt, and three
// tokens with the block, as in rounds of a request.
inline double ErrorOfABlock(const test::TinyDFlashOptions& options,
                            const std::string& backend = "cpu") {
  Drafted drafted(options, backend);
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
  drafted.AddBlock(node, /*root=*/11, options.block, &step);
  const std::vector<float> logits = drafted.Run(&step);
  return RelativeError(logits, Joined(drafted.reference().BlockLogits(states, 11, options.block)));
}

// The same of two roots in one pass that share some of their context, beside rows of a prompt.
inline double ErrorOfTwoBlocks(const test::TinyDFlashOptions& options,
                               const std::string& backend = "cpu") {
  Drafted drafted(options, backend);
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
  return RelativeError(logits, Joined(expected));
}

}  // namespace coppice::model
