// States that a target keeps for a draft, on the CUDA backend: those of the CPU backend, of prompts
// in chunks, of the nodes of forests, after commits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;

constexpr int kIds = 96, kColumns = 24;

class CudaTargetStatesTest : public testing::TestWithParam<std::string> {
 protected:
  ~CudaTargetStatesTest() override { EXPECT_THAT(fake::Violations(), testing::IsEmpty()); }

  void Write(const std::string& dtype, test::TinyEagle3Options draft) {
    const test::TinyLlama target =
        test::MakeTinyFamily(GetParam(), {.vocab = kIds, .dtype = dtype});
    test::WriteTinyLlama(target, dir_.path());
    draft.hidden = kColumns;
    draft_ = test::MakeTinyEagle3(target, draft);
  }
  static std::vector<uint16_t> Read(ModelRunner* runner, const std::vector<int32_t>& slots) {
    std::vector<uint16_t> states(slots.size() * kColumns);
    const absl::Status read = runner->ReadStates(slots, states.data());
    EXPECT_TRUE(read.ok()) << read;
    return states;
  }
  static void Run(ModelRunner* runner, StepBuilder step) {
    const absl::Status submitted = runner->Submit(std::move(step));
    ASSERT_TRUE(submitted.ok()) << submitted;
    const auto rows = runner->Wait();
    ASSERT_TRUE(rows.ok()) << rows.status();
  }

  // The states of a prompt of 40 tokens and of a forest of six nodes below it, then of the same
  // after three of them were committed, read before the copies are made and after.
  std::vector<float> StatesOf(const std::string& backend) {
    test::WriteTinyLlama(draft_, draft_dir_.path());
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.states_for = draft_dir_.path();
    options.backend = backend;
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    options.max_rows = 64;
    const auto single = comm::MakeSingleCommunicator();
    const auto runner = ModelRunner::Load(options, single.get());
    EXPECT_TRUE(runner.ok()) << runner.status();
    if (!runner.ok()) return {};
    BlockManager* const blocks = (*runner)->blocks();
    int cached = 0;
    const SequenceHandle sequence = blocks->Open({}, &cached);
    std::vector<int32_t> all;
    for (const int count : {17, 22, 1}) {
      std::vector<TokenId> tokens;
      for (int i = 0; i < count; ++i)
        tokens.push_back(static_cast<TokenId>((all.size() + i) * 31 % kIds));
      const auto slots = blocks->AppendPrefix(sequence, tokens);
      EXPECT_TRUE(slots.ok()) << slots.status();
      StepBuilder step = (*runner)->NewStep();
      step.AddPrefixRows(sequence, tokens, *slots);
      Run(runner->get(), std::move(step));
      all.insert(all.end(), slots->begin(), slots->end());
    }
    StepBuilder step = (*runner)->NewStep();
    std::vector<KvNode> nodes;
    for (const auto& [parent, token] :
         {std::pair(-1, 3), {-1, 4}, {0, 5}, {1, 6}, {2, 7}, {2, 8}}) {
      const auto node = blocks->AddNode(sequence, parent < 0 ? kPrefixEnd : nodes[parent], token);
      EXPECT_TRUE(node.ok()) << node.status();
      nodes.push_back(*node);
      step.AddNodeRow(sequence, *node, token, RowNeed());
      all.push_back(blocks->slot(sequence, *node));
    }
    Run(runner->get(), std::move(step));
    std::vector<uint16_t> read = Read(runner->get(), all);
    const std::vector<KvNode> leaf = {nodes[4]};
    blocks->Retain(sequence, leaf);
    EXPECT_TRUE(blocks->Commit(sequence, leaf, (*runner)->commits()).ok());
    std::vector<int32_t> committed;
    for (int position = 40; position < 43; ++position) {
      committed.push_back(blocks->block_table(sequence)[position / kBlockSize] * kBlockSize +
                          position % kBlockSize);
    }
    const std::vector<uint16_t> pending = Read(runner->get(), committed);
    const size_t first = all.size() - 6;
    for (const auto& [i, node] : {std::pair(0, 0), {1, 2}, {2, 4}}) {
      const auto begin = read.begin() + static_cast<int64_t>(first + node) * kColumns;
      EXPECT_TRUE(std::equal(begin, begin + kColumns, pending.begin() + i * kColumns)) << i;
    }
    StepBuilder next = (*runner)->NewStep();
    const auto node = blocks->AddNode(sequence, kPrefixEnd, 9);
    EXPECT_TRUE(node.ok()) << node.status();
    next.AddNodeRow(sequence, *node, 9, RowNeed());
    Run(runner->get(), std::move(next));
    EXPECT_EQ(Read(runner->get(), committed), pending);
    const std::vector<uint16_t> last = Read(runner->get(), {blocks->slot(sequence, *node)});
    read.insert(read.end(), last.begin(), last.end());
    std::vector<float> values;
    for (const uint16_t bits : read) values.push_back(kernels::Bf16ToFloat(bits));
    return values;
  }

  // relative: to the largest value, beside the rounding to bf16.
  void ExpectSame(double relative) {
    const std::vector<float> want = StatesOf("cpu"), got = StatesOf("cuda");
    ASSERT_EQ(got.size(), want.size());
    float largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(value));
    ASSERT_GT(largest, 0);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 0x1p-7 * std::abs(want[i]) + relative * largest)
          << "row " << i / kColumns << " column " << i % kColumns;
    }
  }

  const test::TempDir dir_, draft_dir_;
  test::TinyLlama draft_;
};

TEST_P(CudaTargetStatesTest, AreThoseOfTheCpu) {
  Write("F32", {});
  ExpectSame(1e-6);
}

TEST_P(CudaTargetStatesTest, OfABf16CheckpointAreThoseOfTheCpu) {
  Write("BF16", {.dtype = "BF16"});
  ExpectSame(2e-2);
}

// The layers stand beside each other and are normed together.
TEST_P(CudaTargetStatesTest, OfLayersThatAreNormedTogetherAreThoseOfTheCpu) {
  Write("F32", {});
  test::SetConfig(&draft_, "norm_before_fc", "true");
  const int64_t inputs = draft_.tensors.at("fc.weight").shape[1];
  draft_.tensors["input_norm.weight"] =
      test::tiny_llama::RandomTensor("input_norm.weight", {inputs}, "F32", 1, 0.2, 5);
  ExpectSame(1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaTargetStatesTest,
                         testing::Values("llama3", "qwen3", "gemma2", "granite"));

}  // namespace
}  // namespace coppice::model
