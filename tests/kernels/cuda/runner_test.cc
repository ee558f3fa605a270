// A whole model on the CUDA backend and on the CPU backend: the same decisions from the same
// prompts, rows alike. The host never touches device memory while it runs: the simulated device
// ends a process that does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "model/model_runner.h"
#include "nlohmann/json.hpp"
#include "sampling/logit_check.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;

constexpr char kModel[] = "tests/models/stories260k";
constexpr char kGolden[] = "tests/golden/stories260k_logits.json";

struct Greedy {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> rows;  // of the chosen tokens and of a sibling each
};

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() { fake::Configure({.protect = true}); }
  ~RunnerTest() override {
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  std::unique_ptr<ModelRunner> Load(const std::string& backend, const std::string& dtype,
                                    bool always_list = false, const std::string& dir = kModel) {
    ModelRunnerOptions options;
    options.dir = dir;
    options.backend = backend;
    options.dtype = dtype;
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    options.max_rows = 64;
    options.always_list = always_list;
    return ModelRunner::Load(options, one_.get()).value();
  }

  static const kernels::StepRows* Run(ModelRunner* runner, StepBuilder step) {
    EXPECT_TRUE(runner->Submit(std::move(step)).ok());
    runner->WaitForHead();
    return runner->Wait().value();
  }

  // Each step asks for the likeliest token's row and for that of the second likeliest, its sibling;
  // the first of them moves to the prefix.
  static Greedy Decode(ModelRunner* runner, const std::vector<TokenId>& prompt, int count) {
    Greedy greedy;
    BlockManager* blocks = runner->blocks();
    int cached = 0;
    const SequenceHandle sequence = blocks->Open(prompt, &cached);
    StepBuilder prefill = runner->NewStep();
    const std::vector<TokenId> begin(prompt.begin() + cached, prompt.end() - 1);
    const auto slots = blocks->AppendPrefix(sequence, begin).value();
    prefill.AddPrefixRows(sequence, begin, slots);
    Run(runner, std::move(prefill));
    TokenId token = prompt.back(), other = 7;
    for (int i = 0; i < count; ++i) {
      StepBuilder step = runner->NewStep();
      const KvNode node = blocks->AddNode(sequence, kPrefixEnd, token).value();
      const KvNode sibling = blocks->AddNode(sequence, kPrefixEnd, other).value();
      std::vector<int> needs = {step.AddNodeRow(sequence, node, token, RowNeed())};
      needs.push_back(step.AddNodeRow(sequence, sibling, other, RowNeed()));
      const kernels::StepRows* rows = Run(runner, std::move(step));
      for (const int need : needs)
        greedy.rows.emplace_back(rows->Whole(need).begin(), rows->Whole(need).end());
      std::vector<float> row = greedy.rows[greedy.rows.size() - 2];
      const auto best = std::max_element(row.begin(), row.end());
      token = static_cast<TokenId>(best - row.begin());
      *best = -1e30f;
      other = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
      greedy.tokens.push_back(token);
      const std::vector<KvNode> leaves = {node};
      blocks->Retain(sequence, leaves);
      EXPECT_TRUE(blocks->Commit(sequence, leaves, runner->commits()).ok());
    }
    blocks->Close(sequence);
    return greedy;
  }

  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
};

TEST_F(RunnerTest, TheSameTokensAndRowsAsTheCpu) {
  nlohmann::json golden;
  std::ifstream(kGolden) >> golden;
  const auto cpu = Load("cpu", "f32"), cuda = Load("cuda", "f32");
  for (const auto& item : golden["cases"]) {
    const std::vector<TokenId> prompt = item["ids"];
    const Greedy want = Decode(cpu.get(), prompt, 40), got = Decode(cuda.get(), prompt, 40);
    EXPECT_EQ(got.tokens, want.tokens) << item["text"];
    for (size_t i = 0; i < want.rows.size(); ++i)
      EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), 1e-4) << i;
  }
}

TEST_F(RunnerTest, RowsInBf16AreThoseOfTheCpuUpToTheRounding) {
  const auto cpu = Load("cpu", "bf16"), cuda = Load("cuda", "bf16");
  const std::vector<TokenId> prompt = {1, 403, 407, 261, 378};
  const Greedy want = Decode(cpu.get(), prompt, 1), got = Decode(cuda.get(), prompt, 1);
  for (size_t i = 0; i < want.rows.size(); ++i)
    EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), 3e-2) << i;
}

// An f16 folder runs in f16 without being asked to, and as near to the same weights in f32.
TEST_F(RunnerTest, AnF16FolderRunsInF16) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({.dtype = "F16"}), dir.path());
  const auto cpu = Load("cpu", "auto", /*always_list=*/false, dir.path());
  const auto cuda = Load("cuda", "auto", /*always_list=*/false, dir.path());
  EXPECT_EQ(cpu->dtype(), kernels::DType::kF32);
  EXPECT_EQ(cuda->dtype(), kernels::DType::kF16);
  const std::vector<TokenId> prompt = {1, 40, 7, 61, 37};
  const Greedy want = Decode(cpu.get(), prompt, 1), got = Decode(cuda.get(), prompt, 1);
  for (size_t i = 0; i < want.rows.size(); ++i)
    EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), 3e-3) << i;
}

// A value that f16 does not hold ends in a logit that is no number, never in one that looks like
// one.
TEST_F(RunnerTest, OverflowInF16ReachesTheLogits) {
  for (const char* const name :
       {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight"}) {
    const test::TempDir dir;
    test::TinyLlama tiny = test::MakeTinyLlama({.dtype = "F16"});
    for (float& value : tiny.tensors.at(name).values) value *= 50000;
    test::WriteTinyLlama(tiny, dir.path());
    const auto cuda = Load("cuda", "auto", /*always_list=*/false, dir.path());
    for (const std::vector<float>& row : Decode(cuda.get(), {1, 40, 9}, 1).rows)
      EXPECT_GE(sampling::FirstBadLogit(row), 0) << name;
  }
}

// A candidate list that does not cover enough is fetched whole, as over the wire.
TEST_F(RunnerTest, CandidateListsComeOfTheSameRows) {
  const auto whole = Load("cuda", "f32"), listing = Load("cuda", "f32", /*always_list=*/true);
  for (const double cover : {0.0, 0.9999999}) {
    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.count = 5;
    need.sums = true;
    need.cover = cover;
    std::vector<float> row;
    for (ModelRunner* runner : {whole.get(), listing.get()}) {
      int cached = 0;
      const std::vector<TokenId> prompt = {403, 407};
      const SequenceHandle sequence = runner->blocks()->Open(prompt, &cached);
      StepBuilder step = runner->NewStep();
      const auto slots = runner->blocks()->AppendPrefix(sequence, {403}).value();
      step.AddPrefixRows(sequence, {403}, slots);
      const KvNode node = runner->blocks()->AddNode(sequence, kPrefixEnd, 407).value();
      const int place = step.AddNodeRow(sequence, node, 407, need);
      const kernels::StepRows* rows = Run(runner, std::move(step));
      runner->blocks()->Close(sequence);
      if (runner == whole.get()) {
        row.assign(rows->Whole(place).begin(), rows->Whole(place).end());
        continue;
      }
      if (cover > 0) {
        EXPECT_THAT(rows->Whole(place), testing::ElementsAreArray(row));
        continue;
      }
      ASSERT_NE(rows->Listed(place), nullptr);
      const TokenList& list = rows->Listed(place)->lists[0];
      EXPECT_GE(list.tokens.size(), 5u);
      for (size_t i = 0; i < list.tokens.size(); ++i)
        EXPECT_EQ(list.logits[i], row[list.tokens[i]]);
    }
  }
}

}  // namespace
}  // namespace coppice::model
