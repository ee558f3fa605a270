// The forward pass compared with the naive double-precision reference, for every kind of folder
// that is served.
#include "model/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

constexpr char kLlama3[] = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";

std::vector<TokenId> SomeTokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 17) % vocab));
  return tokens;
}

struct Case {
  const char* name;
  test::TinyLlamaOptions options;
  std::string dtype = "auto";
  double tolerance = 1e-5;  // relative to the largest logit
};

class DecoderCase : public testing::TestWithParam<Case> {};

TEST_P(DecoderCase, LogitsAreThoseOfTheReference) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama(GetParam().options);
  test::WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .dtype = GetParam().dtype, .max_rows = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> tokens = SomeTokens(50, tiny.options.vocab);
  const auto expected = ReferenceLogits(tiny, tokens);
  // In two chunks, so that the second reads what the first has stored.
  for (const auto& [begin, end] : {std::pair(0, 37), std::pair(37, 50)}) {
    const auto logits = loaded->Run(PlanSketch(64).Prefix(tokens, begin, end, end - begin).plan);
    ASSERT_TRUE(logits.ok()) << logits.status();
    std::vector<double> rows;
    for (int t = begin; t < end; ++t)
      rows.insert(rows.end(), expected[t].begin(), expected[t].end());
    const double error = RelativeError(*logits, rows);
    EXPECT_LT(error, GetParam().tolerance) << "tokens " << begin << " to " << end;
    RecordProperty(std::to_string(begin), std::to_string(error));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Folders, DecoderCase,
    testing::Values(
        Case{"Plain", {}}, Case{"Tied", {.tied = true}}, Case{"MultiHead", {.kv_heads = 4}},
        Case{"OneKvHead", {.kv_heads = 1}}, Case{"ExplicitHeadDim", {.head_dim = 16}},
        Case{"OddSizes",
             {.hidden = 40, .heads = 5, .kv_heads = 5, .intermediate = 37, .vocab = 61}},
        Case{"Sharded", {.shards = 3}},
        Case{"Llama3Rope", {.head_dim = 32, .rope_scaling = kLlama3}},
        Case{"LinearRope", {.rope_scaling = R"({"rope_type": "linear", "factor": 4.0})"}},
        Case{"AttentionAndMlpBias", {.attention_bias = true, .mlp_bias = true}},
        Case{"Qwen2", {.architecture = "Qwen2ForCausalLM"}},
        Case{"Mistral", {.architecture = "MistralForCausalLM"}},
        // f16 is stored as f32, so it is exact. So is bf16 if f32 is requested.
        Case{"F16", {.dtype = "F16"}}, Case{"BF16KeptAsF32", {.dtype = "BF16"}, "f32"},
        // bf16 weights, KV and factors have 8 bits of significand.
        Case{"BF16", {.dtype = "BF16", .shards = 2}, "auto", 4e-2},
        Case{"F32KeptAsBF16", {.tied = true}, "bf16", 4e-2}),
    [](const auto& info) { return info.param.name; });

TEST(Transformer, GivesLogitsOfTheWantedRowsAlone) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({});
  test::WriteTinyLlama(tiny, dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 32});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<TokenId> tokens = SomeTokens(20, 96);
  StepPlan plan = PlanSketch(32).Prefix(tokens, 0, 20, 20).plan;
  const std::vector<float> all = *loaded->Run(plan);
  plan.needs = {{.row = 3}, {.row = 7}, {.row = 19}};
  const std::vector<float> some = *loaded->Run(plan);
  ASSERT_EQ(some.size(), size_t{3 * 96});
  for (int i = 0; i < 3; ++i) {
    const auto row = all.begin() + plan.needs[i].row * 96;
    EXPECT_TRUE(std::equal(row, row + 96, some.begin() + i * 96)) << "row " << plan.needs[i].row;
  }
  plan.needs.clear();
  EXPECT_THAT(*loaded->Run(plan), testing::IsEmpty());
}

// Logs the ops of a pass.
class OpLog : public kernels::Ops {
 public:
  OpLog(bool rows, bool needs) : rows_(rows), needs_(needs) {}
  bool has_rows() const override { return rows_; }
  bool has_needs() const override { return needs_; }
  void CommitKv(kernels::KvPool*) override { Add("commit"); }
  void Embed(const kernels::Weight&, int64_t, float, kernels::Tensor) override { Add("embed"); }
  void AddPositions(const kernels::Weight&, int, kernels::Tensor) override { Add("positions"); }
  void AddNorm(kernels::Tensor x, const kernels::Addend& addend, const kernels::Norm& norm,
               kernels::Tensor out) override {
    Add(absl::StrCat(addend.empty()        ? ""
                     : addend.norm.empty() ? "add-"
                                           : "norm-add-",
                     norm.empty()         ? "copy"
                     : x.data == out.data ? "norm-in-place"
                                          : "norm"));
  }
  void MatMul(const kernels::Weight&, kernels::Tensor, kernels::Tensor, bool accumulate) override {
    Add(accumulate ? "matmul+" : "matmul");
  }
  void RopeAndStoreKv(int layer, const kernels::HeadSteps&, kernels::Tensor,
                      kernels::KvPool*) override {
    Add(absl::StrCat("rope", layer));
  }
  void Attention(int layer, const kernels::AttentionRule&, kernels::Tensor, const kernels::KvPool&,
                 kernels::Tensor) override {
    Add(absl::StrCat("attention", layer));
  }
  void Activate(kernels::Activation, kernels::Tensor, kernels::Tensor) override { Add("activate"); }
  void MixExperts(const kernels::Experts&, kernels::Tensor, kernels::Tensor) override {
    Add("experts");
  }
  void SoftCap(kernels::Tensor, float) override { Add("cap"); }
  void StoreStates(kernels::Tensor, kernels::KvPool*) override { Add("store"); }
  void LoadStates(const kernels::KvPool&, kernels::Tensor) override { Add("load"); }
  void PutStates(kernels::Tensor) override { Add("put"); }
  void NormPair(kernels::Tensor, const kernels::Norm&, kernels::Tensor, const kernels::Norm&,
                kernels::Tensor) override {
    Add("pair");
  }
  void GatherRows(absl::Span<const kernels::Tensor> tensors) override {
    Add(absl::StrCat("gather", tensors.size()));
  }
  void AllReduce(kernels::Tensor) override { Add("reduce"); }
  void Scatter(const kernels::Weight&, kernels::Tensor, kernels::Tensor) override { Add("spread"); }
  void Select(kernels::Tensor, int64_t, int64_t) override { Add("select"); }

  std::string log;

 private:
  void Add(absl::string_view op) { absl::StrAppend(&log, log.empty() ? "" : " ", op); }

  bool rows_, needs_;
};

std::string BodyOps(Transformer* decoder, bool rows, bool needs) {
  OpLog ops(rows, needs);
  decoder->Body(&ops);
  return ops.log;
}

std::string HeadOps(Transformer* decoder) {
  OpLog ops(true, true);
  decoder->Head(&ops);
  return ops.log;
}

// After the body, only the head is left. No row is computed further than it is needed.
TEST(Transformer, BodyStopsBeforeTheHeadAndWhereNothingIsNeeded) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Transformer* decoder = loaded->decoder.get();
  EXPECT_EQ(BodyOps(decoder, false, false), "commit");
  const std::string first =
      "commit embed norm matmul rope0 attention0 matmul+ norm matmul activate matmul+ ";
  EXPECT_EQ(BodyOps(decoder, true, false), first + "norm matmul rope1");
  EXPECT_EQ(BodyOps(decoder, true, true),
            first + "norm matmul rope1 attention1 gather2 matmul+ norm matmul activate matmul+");
  EXPECT_EQ(HeadOps(decoder), "norm matmul select");
}

// The output of a layer is whole once the next one has begun: it is taken before attention adds to
// it, for every row, and the last of those that are joined completes the states.
TEST(Transformer, TakesStatesOfAllRowsWhereALayerEnds) {
  const auto ops_of = [](const char* family, const char* field) {
    const test::TempDir dir, draft_dir;
    const test::TinyLlama target = test::MakeTinyFamily(family, {.layers = 3});
    test::TinyLlama draft = test::MakeTinyEagle3(target, {.layers = {0, 1}});
    if (*field != 0) {
      test::SetConfig(&draft, field, "true");
      draft.tensors["input_norm.weight"] = {"F32", {64}, std::vector<float>(64, 1)};
    }
    test::WriteTinyLlama(target, dir.path());
    test::WriteTinyLlama(draft, draft_dir.path());
    auto loaded = LoadForTest({.dir = dir.path(), .states_for = draft_dir.path(), .max_rows = 8});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return BodyOps(loaded->decoder.get(), true, false);
  };
  EXPECT_EQ(ops_of("llama3", ""),
            "commit embed norm matmul rope0 attention0 matmul+ norm matmul activate matmul+ norm "
            "matmul rope1 attention1 copy matmul matmul+ norm matmul activate matmul+ norm matmul "
            "rope2 copy matmul+ store");
  EXPECT_EQ(ops_of("llama3", "norm_before_fc"),
            "commit embed norm matmul rope0 attention0 matmul+ norm matmul activate matmul+ norm "
            "matmul rope1 attention1 copy matmul+ norm matmul activate matmul+ norm matmul rope2 "
            "pair norm matmul store");
}

// Other parts are other ops in the same order.
TEST(Transformer, FamiliesHaveTheOpsOfTheirParts) {
  const auto ops_of = [](const char* family) {
    const test::TempDir dir;
    test::WriteTinyLlama(test::MakeTinyFamily(family, {.layers = 1}), dir.path());
    auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return BodyOps(loaded->decoder.get(), true, true) + " | " + HeadOps(loaded->decoder.get());
  };
  EXPECT_EQ(ops_of("gemma2"),
            "commit embed norm matmul rope0 attention0 gather2 matmul norm-add-norm matmul "
            "activate matmul | norm-add-norm matmul cap select");
  EXPECT_EQ(ops_of("opt"),
            "commit embed positions norm matmul rope0 attention0 gather2 matmul+ norm matmul "
            "activate matmul+ | norm matmul select");
  EXPECT_EQ(ops_of("opt_350m"),
            "commit embed copy matmul positions copy matmul rope0 attention0 gather2 matmul+ "
            "norm-in-place copy matmul activate matmul+ | norm-in-place copy matmul matmul select");
}

// There are two sums per layer and one for the embedding. The head adds the last sum of the body.
TEST(Transformer, SumsRowParallelProductsOverTheRanks) {
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({}), dir.path());
  test::RunRanks(2, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8}, communicator);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(BodyOps(loaded->decoder.get(), true, true),
              "commit embed reduce "
              "norm matmul rope0 attention0 matmul reduce add-norm matmul activate matmul reduce "
              "add-norm matmul rope1 attention1 gather2 matmul reduce add-norm matmul activate "
              "matmul reduce");
    EXPECT_EQ(HeadOps(loaded->decoder.get()), "add-norm matmul select");
  });
}

}  // namespace
}  // namespace coppice::model
