// Exact mode: the bits of a row do not depend on its company. A token of one sequence is computed
// alone, as a prefill row, behind chains, as a node of a tree, and beside six and sixty-three other
// sequences; and so with the products of cuBLASLt, where they must differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/model_runner.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"
#ifdef COPPICE_CUDA_SIM
#include "kernels/cuda/simulator/fake/fake_device.h"
#endif

namespace coppice::model {
namespace {

constexpr int kVocab = 96, kLength = 140;  // of the sequence: three KV tiles
using Row = std::vector<float>;

// What is computed in the step that computes the last token of the sequence.
struct Company {
  int prefilled = kLength - 1;  // tokens of the sequence in the prefix; the others are a chain
  int chunk = 1000;             // of prefill
  bool tree = false;            // with siblings all along the chain
  int others = 0;               // sequences
};

struct ModelCase {
  std::string dtype;
  bool experts = false;
  std::string kv_dtype = "auto";
  std::string weight_dtype = "auto";
};

class ExactTest : public testing::TestWithParam<ModelCase> {
 protected:
  ExactTest() {
    std::mt19937 generator(7);
    for (int i = 0; i < kLength; ++i) tokens_.push_back(static_cast<int>(generator() % kVocab));
    if (GetParam().experts) {
      test::WriteTinyLlama(test::MakeTinyFamily("qwen3_moe", {.layers = 2}), dir_.path());
      return;
    }
    test::TinyLlamaOptions tiny;
    tiny.hidden = 64;
    tiny.heads = 4;
    tiny.kv_heads = 1;  // a group of 4: 16 rows fill a tile of 64
    tiny.vocab = kVocab;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
  }
#ifdef COPPICE_CUDA_SIM
  ~ExactTest() override { EXPECT_THAT(kernels::cuda::fake::Violations(), testing::IsEmpty()); }
#endif

  std::unique_ptr<ModelRunner> Load(bool exact) {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.dtype = GetParam().dtype;
    options.kv_dtype = GetParam().kv_dtype;
    options.weight_dtype = GetParam().weight_dtype;
    options.kv_bytes = 4 << 20;
    options.threads = 1;
    options.max_rows = 512;
    options.scratch_blocks = 16;
    options.exact = exact;
    return ModelRunner::Load(options, one_.get()).value();
  }

  static const kernels::StepRows* Run(ModelRunner* runner, StepBuilder step) {
    EXPECT_TRUE(runner->Submit(std::move(step)).ok());
    runner->WaitForHead();
    return runner->Wait().value();
  }
  static void Prefill(ModelRunner* runner, SequenceHandle sequence,
                      absl::Span<const TokenId> tokens, int chunk) {
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      StepBuilder step = runner->NewStep();
      const auto some = tokens.subspan(begin, chunk);
      const auto slots = runner->blocks()->AppendPrefix(sequence, some).value();
      step.AddPrefixRows(sequence, some, slots);
      Run(runner, std::move(step));
    }
  }

  // The logits behind the sequence's last token.
  Row LastRow(ModelRunner* runner, const Company& company) const {
    BlockManager* blocks = runner->blocks();
    std::vector<SequenceHandle> open;
    int cached = 0;
    const auto tokens = absl::MakeConstSpan(tokens_);
    open.push_back(blocks->Open({tokens_.front()}, &cached));
    Prefill(runner, open[0], tokens.subspan(0, company.prefilled), company.chunk);
    for (int i = 0; i < company.others; ++i) {
      open.push_back(blocks->Open({static_cast<TokenId>(i % kVocab)}, &cached));
      const std::vector<TokenId> prompt(1 + i % 9, static_cast<TokenId>(i));
      Prefill(runner, open.back(), prompt, 100);
    }
    // The sequence is in the midst of the others.
    std::rotate(open.begin(), open.begin() + 1 + company.others / 2, open.end());
    StepBuilder step = runner->NewStep();
    int need = -1;
    for (size_t i = 0; i < open.size(); ++i) {
      const bool own = static_cast<int>(i) == company.others - company.others / 2;
      if (own) {
        need = AddChain(runner, open[i], company, &step);
        continue;
      }
      const TokenId token = static_cast<TokenId>(3 * i % kVocab);
      const KvNode node = blocks->AddNode(open[i], kPrefixEnd, token).value();
      step.AddNodeRow(open[i], node, token, RowNeed());
    }
    const auto whole = Run(runner, std::move(step))->Whole(need);
    const Row row(whole.begin(), whole.end());
    for (const SequenceHandle sequence : open) blocks->Close(sequence);
    blocks->EndRound();
    return row;
  }

  int AddChain(ModelRunner* runner, SequenceHandle sequence, const Company& company,
               StepBuilder* step) const {
    BlockManager* blocks = runner->blocks();
    KvNode parent = kPrefixEnd;
    for (int i = company.prefilled; i + 1 < kLength; ++i) {
      const auto sibling = static_cast<TokenId>((tokens_[i] + 1) % kVocab);
      if (company.tree) {
        const KvNode node = blocks->AddNode(sequence, parent, sibling).value();
        step->AddNodeRow(sequence, node, sibling);
        const KvNode child = blocks->AddNode(sequence, node, 5).value();
        step->AddNodeRow(sequence, child, 5);
      }
      parent = blocks->AddNode(sequence, parent, tokens_[i]).value();
      step->AddNodeRow(sequence, parent, tokens_[i]);
    }
    const KvNode last = blocks->AddNode(sequence, parent, tokens_.back()).value();
    return step->AddNodeRow(sequence, last, tokens_.back(), RowNeed());
  }

  static std::vector<std::pair<const char*, Company>> Companies() {
    return {{"prefilled in chunks of 33", {.chunk = 33}},
            {"half a chain", {.prefilled = 60}},
            {"a node of a tree", {.prefilled = 120, .tree = true}},
            {"a node of a tree across a KV tile", {.prefilled = 126, .chunk = 5, .tree = true}},
            {"one of 7", {.others = 6}},
            {"a chain, one of 7", {.prefilled = 100, .others = 6}},
            {"one of 64", {.chunk = 64, .others = 63}},
            {"a tree, one of 64", {.prefilled = 110, .tree = true, .others = 63}}};
  }

  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  std::vector<TokenId> tokens_;
};

TEST_P(ExactTest, ARowHasTheSameBitsInAnyCompany) {
  const auto runner = Load(/*exact=*/true);
  EXPECT_TRUE(runner->batch_invariant());
  const Row alone = LastRow(runner.get(), {});
  for (const auto& [what, company] : Companies()) {
    const Row row = LastRow(runner.get(), company);
    ASSERT_EQ(row.size(), alone.size());
    EXPECT_EQ(std::memcmp(row.data(), alone.data(), row.size() * sizeof(float)), 0) << what;
  }
}

#ifdef COPPICE_CUDA_SIM  // a device may happen to sum in one order
// What the test above would say of products whose order depends on the rows.
TEST_P(ExactTest, WithoutItTheBitsDiffer) {
  const auto runner = Load(/*exact=*/false);
  EXPECT_FALSE(runner->batch_invariant());
  const Row alone = LastRow(runner.get(), {});
  int differ = 0;
  for (const auto& [what, company] : Companies())
    differ += std::memcmp(LastRow(runner.get(), company).data(), alone.data(),
                          alone.size() * sizeof(float)) != 0;
  EXPECT_GT(differ, 4);
}
#endif

INSTANTIATE_TEST_SUITE_P(
    Types, ExactTest,
    testing::Values(ModelCase{"f32"}, ModelCase{"bf16"}, ModelCase{"f16"},
                    ModelCase{"f32", false, "int8"}, ModelCase{"bf16", false, "int8"},
                    ModelCase{"f16", false, "int8"}, ModelCase{"f32", true},
                    ModelCase{"bf16", true}, ModelCase{"bf16", false, "auto", "int4"}),
    [](const auto& info) {
      return absl::StrCat(info.param.experts ? "experts_" : "", info.param.dtype,
                          info.param.kv_dtype == "auto" ? "" : "_kv8",
                          info.param.weight_dtype == "auto" ? "" : "_int4");
    });

}  // namespace
}  // namespace coppice::model
