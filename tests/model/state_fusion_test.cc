// The states that a target keeps for a draft, compared with outputs of its layers in double
// precision, joined by plain loops.
#include "model/state_fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/memory_traffic.h"
#include "sampling/rng.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_family.h"

namespace coppice::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kEpsilon = 1e-5;  // of the draft's norms

std::vector<TokenId> SomeTokens(int count, int vocab) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(sampling::Finalize(i + 29) % vocab));
  return tokens;
}

// A head on a target, with what only some heads have, or a block drafter.
struct DraftOptions {
  std::vector<int> layers = {0, 1, 2};
  int hidden = 24;
  bool bias = false;
  bool each_norm = false;
  bool whole_norm = false;
  bool last_norm = false;  // a block drafter, with a norm of what `fc` gives
  std::string dtype = "F32";
};

test::TinyLlama MakeDraft(const test::TinyLlama& target, const DraftOptions& o) {
  if (o.last_norm) return test::MakeTinyDFlash(target, {.target_layers = o.layers});
  test::TinyLlama draft = test::MakeTinyEagle3(
      target, {.layers = o.layers, .hidden = o.hidden, .dtype = o.dtype, .seed = 5});
  const auto add = [&](const std::string& name, int64_t size, double mean) {
    draft.tensors[name] = test::tiny_llama::RandomTensor(name, {size}, o.dtype, mean, 0.3, 5);
  };
  const int64_t all = draft.tensors["fc.weight"].shape[1];
  const auto layers = static_cast<int64_t>(o.layers.size());
  if (o.bias) add("fc.bias", o.hidden, 0);
  if (o.whole_norm) add("input_norm.weight", all, 1);
  for (int64_t i = 0; o.each_norm && i < layers; ++i)
    add(absl::StrCat("fc_norm.", i, ".weight"), all / layers, 1);
  if (o.whole_norm) test::SetConfig(&draft, "norm_before_fc", "true");
  if (o.each_norm) test::SetConfig(&draft, "fc_norm", "true");
  return draft;
}

float FromBf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

void Norm(const std::vector<float>& gain, size_t first, size_t count, std::vector<double>* x) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += (*x)[first + i] * (*x)[first + i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + kEpsilon);
  for (size_t i = 0; i < count; ++i) (*x)[first + i] *= scale * gain[i];
}

// [tokens][hidden of the draft].
std::vector<std::vector<double>> ExpectedStates(const test::TinyLlama& target,
                                                const test::TinyLlama& draft,
                                                const DraftOptions& options,
                                                const std::vector<TokenId>& tokens) {
  const auto outputs = ReferenceOutputs(target, tokens);
  const std::vector<float>& fc = draft.tensors.at("fc.weight").values;
  std::vector<std::vector<double>> states;
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<double> joined;
    for (size_t i = 0; i < options.layers.size(); ++i) {
      const std::vector<double>& output = outputs[options.layers[i]][t];
      joined.insert(joined.end(), output.begin(), output.end());
      if (options.each_norm) {
        Norm(draft.tensors.at("fc_norm." + std::to_string(i) + ".weight").values,
             joined.size() - output.size(), output.size(), &joined);
      }
    }
    if (options.whole_norm)
      Norm(draft.tensors.at("input_norm.weight").values, 0, joined.size(), &joined);
    std::vector<double> state(options.hidden);
    for (int h = 0; h < options.hidden; ++h) {
      if (options.bias) state[h] = draft.tensors.at("fc.bias").values[h];
      for (size_t c = 0; c < joined.size(); ++c) state[h] += fc[h * joined.size() + c] * joined[c];
    }
    if (options.last_norm)
      Norm(draft.tensors.at("hidden_norm.weight").values, 0, state.size(), &state);
    states.push_back(state);
  }
  return states;
}

// A model that keeps states, and what they must be.
class Kept {
 public:
  Kept(const test::TinyLlama& target, DraftOptions options, LoadOptions load = {})
      : target_(target), options_(std::move(options)), draft_(MakeDraft(target_, options_)) {
    test::WriteTinyLlama(target_, target_dir_.path());
    test::WriteTinyLlama(draft_, draft_dir_.path());
    load.dir = target_dir_.path();
    load.states_for = draft_dir_.path();
    load.max_rows = 64;
    loaded_ = LoadForTest(load);
    EXPECT_TRUE(loaded_.ok()) << loaded_.status();
  }
  LoadedModel* operator->() { return &*loaded_; }

  std::vector<double> State(int32_t slot) {
    std::vector<uint16_t> bits(options_.hidden);
    const absl::Status read = loaded_->backend->ReadStates(*loaded_->pool, {slot}, bits.data());
    EXPECT_TRUE(read.ok()) << read;
    std::vector<double> state;
    for (const uint16_t value : bits) state.push_back(FromBf16(value));
    return state;
  }
  std::vector<std::vector<double>> Expected(const std::vector<TokenId>& tokens) const {
    return ExpectedStates(target_, draft_, options_, tokens);
  }

 private:
  const test::TinyLlama target_;
  const DraftOptions options_;
  const test::TinyLlama draft_;
  test::TempDir target_dir_, draft_dir_;
  absl::StatusOr<LoadedModel> loaded_ = absl::UnknownError("not loaded");
};

// of: relative to the largest value of the state. A value is rounded to bf16 once.
void ExpectNear(const std::vector<double>& state, const std::vector<double>& expected, double of,
                const std::string& where) {
  double most = 0;
  for (const double value : expected) most = std::max(most, std::fabs(value));
  ASSERT_EQ(state.size(), expected.size());
  for (size_t i = 0; i < state.size(); ++i) {
    ASSERT_NEAR(state[i], expected[i], std::fabs(expected[i]) / 256 + of * most)
        << where << ", column " << i;
  }
}

struct Case {
  const char* name;
  const char* family;
  DraftOptions draft;
  std::string dtype = "F32";
  double tolerance = 1e-5;
};

class StatesCase : public testing::TestWithParam<Case> {};

// A prompt in two chunks, of which the first needs no logits, then a tree of nodes.
TEST_P(StatesCase, StatesOfAllRowsAreThoseOfTheReference) {
  const Case& c = GetParam();
  Kept kept(test::MakeTinyFamily(c.family, {.layers = 5, .dtype = c.dtype}), c.draft);
  const std::vector<TokenId> tokens = SomeTokens(40, 96);
  ASSERT_TRUE(kept->Run(PlanSketch(64).Prefix(tokens, 0, 23, 0).plan).ok());
  ASSERT_TRUE(kept->Run(PlanSketch(64).Prefix(tokens, 23, 40, 2).plan).ok());
  const PlanSketch slots(64);
  const auto expected = kept.Expected(tokens);
  for (int t = 0; t < 40; ++t)
    ExpectNear(kept.State(slots.prefix_slot(t)), expected[t], c.tolerance, absl::StrCat("row ", t));

  const std::vector<ForestNode> nodes = {{-1, 7}, {0, 8}, {0, 9}, {-1, 10}, {2, 11}};
  ASSERT_TRUE(kept->Run(PlanSketch(64).Forest(40, nodes).plan).ok());
  for (size_t node = 0; node < nodes.size(); ++node) {
    std::vector<TokenId> path;
    for (int i = static_cast<int>(node); i >= 0; i = nodes[i].parent)
      path.push_back(nodes[i].token);
    std::vector<TokenId> text = tokens;
    text.insert(text.end(), path.rbegin(), path.rend());
    ExpectNear(kept.State(slots.scratch_slot(static_cast<int>(node))), kept.Expected(text).back(),
               c.tolerance, absl::StrCat("node ", node));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, StatesCase,
    testing::Values(
        Case{"Llama", "llama3", {}}, Case{"OneLayer", "llama3", {.layers = {3}}},
        Case{"InAnotherOrder", "llama3", {.layers = {3, 0, 2}}},
        Case{"Bias", "llama3", {.layers = {2, 1}, .bias = true}},
        Case{"NormOfEach", "llama3", {.layers = {2, 0, 3}, .each_norm = true}},
        Case{"NormOfAll", "llama3", {.layers = {0, 2, 3}, .bias = true, .whole_norm = true}},
        Case{"NormOfTheState", "llama3", {.layers = {1, 3}, .hidden = 32, .last_norm = true}},
        Case{"WiderThanTheTarget", "llama3", {.hidden = 40}},
        // Where the residual is complete only when the next layer begins.
        Case{"ScaledResidual", "granite", {}}, Case{"NormsAround", "gemma2", {}},
        Case{"NormsAfter", "olmo2", {}}, Case{"NormsAfterSums", "opt_350m", {}},
        Case{"Parallel", "gpt_neox", {}}, Case{"Experts", "mixtral", {}},
        // The weights of target and draft are rounded to bf16, and so are the factors.
        Case{"BF16", "llama3", {.dtype = "BF16"}, "BF16", 4e-2}),
    [](const auto& info) { return info.param.name; });

// Beside integers the joining matrices are integers, too. Norm of the errors of all states, relative
// to theirs: that of states which have nothing to do with each other is 1.4.
TEST(KeptStates, BesideIntegersStatesAreJoinedInEightBits) {
  for (const char* dtype : {"int8", "int4"}) {
    Kept kept(test::MakeTinyFamily("llama3"), {}, {.weight_dtype = dtype});
    EXPECT_EQ(kept->parts().fusion.layers[0].matrix->dtype, kernels::DType::kQ8_0);
    const std::vector<TokenId> tokens = SomeTokens(40, 96);
    ASSERT_TRUE(kept->Run(PlanSketch(64).Prefix(tokens, 0, 40, 0).plan).ok());
    const auto expected = kept.Expected(tokens);
    double errors = 0, all = 0;
    for (int t = 0; t < 40; ++t) {
      const std::vector<double> state = kept.State(PlanSketch(64).prefix_slot(t));
      for (size_t i = 0; i < state.size(); ++i) {
        errors += (state[i] - expected[t][i]) * (state[i] - expected[t][i]);
        all += expected[t][i] * expected[t][i];
      }
    }
    EXPECT_LT(std::sqrt(errors / all), dtype == std::string("int8") ? 0.1 : 0.4) << dtype;
    RecordProperty(dtype, std::to_string(std::sqrt(errors / all)));
  }
}

// A target's own answers do not change.
TEST(KeptStates, LogitsKeepTheirBits) {
  for (const char* family : {"llama3", "gemma2", "gpt_neox"}) {
    const test::TempDir dir, draft_dir;
    const test::TinyLlama target = test::MakeTinyFamily(family);
    test::WriteTinyLlama(target, dir.path());
    test::WriteTinyLlama(MakeDraft(target, {}), draft_dir.path());
    const std::vector<TokenId> tokens = SomeTokens(30, 96);
    std::vector<float> logits[2];
    for (const bool keeps : {false, true}) {
      auto loaded = LoadForTest(
          {.dir = dir.path(), .states_for = keeps ? draft_dir.path() : "", .max_rows = 64});
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->pool->shape.state_columns, keeps ? 24 : 0);
      for (const auto& [begin, end] : {std::pair(0, 20), std::pair(20, 29), std::pair(29, 30)}) {
        const auto rows = loaded->Run(PlanSketch(64).Prefix(tokens, begin, end, 2).plan);
        ASSERT_TRUE(rows.ok()) << rows.status();
        logits[keeps].insert(logits[keeps].end(), rows->begin(), rows->end());
      }
    }
    EXPECT_EQ(logits[1], logits[0]) << family;
  }
}

// What is predicted before loading is what there is; passes read the joining matrix, too, and
// attention reads no states.
TEST(KeptStates, AreCounted) {
  const test::TempDir dir, draft_dir;
  const test::TinyLlama target = test::MakeTinyFamily("llama3");
  test::WriteTinyLlama(target, dir.path());
  test::WriteTinyLlama(MakeDraft(target, {.hidden = 32, .each_norm = true}), draft_dir.path());
  LoadOptions options = {.dir = dir.path(), .max_rows = 16};
  auto without = LoadForTest(options);
  options.states_for = draft_dir.path();
  auto with = LoadForTest(options);
  ASSERT_TRUE(without.ok() && with.ok()) << with.status();
  const size_t weights = 3 * 32 * 32 * 4, gains = 3 * 32 * 4;
  EXPECT_EQ(with->parts().fusion.bytes, weights + gains);
  EXPECT_EQ(with->parts().memory.weights - without->parts().memory.weights, weights + gains);
  EXPECT_EQ(with->parts().memory.activations - without->parts().memory.activations, 16 * 32 * 4);
  EXPECT_EQ(with->parts().kv_block_bytes() - without->parts().kv_block_bytes(),
            kBlockSize * 32 * 2u);
  EXPECT_EQ(with->pool->bytes, kTestBlocks * with->parts().kv_block_bytes());
  const ReadSizes before = SizesOf(without->parts()), after = SizesOf(with->parts());
  EXPECT_EQ(after.layers - before.layers, weights + gains);
  EXPECT_EQ(after.kv_token, before.kv_token);
  const auto estimate = EstimateLoad(options, *with->backend, /*ranks=*/1);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->kv_token_bytes * kBlockSize, with->parts().kv_block_bytes());
  EXPECT_EQ(estimate->memory.weights, with->parts().memory.weights);
}

class MisfitTest : public testing::Test {
 protected:
  MisfitTest() { test::WriteTinyLlama(target_, dir_.path()); }
  std::string Refusal(const test::TinyLlama& draft) {
    test::WriteTinyLlama(draft, draft_dir_.path());
    const auto loaded = LoadForTest({.dir = dir_.path(), .states_for = draft_dir_.path()});
    return loaded.ok() ? "loaded" : std::string(loaded.status().message());
  }
  const test::TinyLlama target_ = test::MakeTinyFamily("llama3");
  test::TempDir dir_, draft_dir_;
};

TEST_F(MisfitTest, DraftsOfAnotherTargetAreRefusedByName) {
  EXPECT_THAT(Refusal(test::MakeTinyEagle3(test::MakeTinyLlama({.hidden = 48, .layers = 4}))),
              AllOf(HasSubstr(draft_dir_.path()), HasSubstr("target_hidden_size"), HasSubstr("48"),
                    HasSubstr("expected 32")));
  EXPECT_THAT(Refusal(test::MakeTinyEagle3(test::MakeTinyLlama({.layers = 4, .vocab = 80}))),
              AllOf(HasSubstr("vocab_size"), HasSubstr("80"), HasSubstr("expected 96")));
  EXPECT_THAT(Refusal(MakeDraft(target_, {.layers = {0, 1, 3}})),
              AllOf(HasSubstr("layer 3"), HasSubstr("expected 0 to 2"), HasSubstr(dir_.path())));
  EXPECT_THAT(Refusal(MakeDraft(target_, {.layers = {1, 0}, .whole_norm = true})),
              HasSubstr("norm_before_fc"));
  EXPECT_THAT(Refusal(test::MakeTinyLlama({})), HasSubstr("takes no states of a target"));
}

TEST_F(MisfitTest, TensorsThatDoNotFitAreRefusedByName) {
  test::TinyLlama draft = MakeDraft(target_, {.each_norm = true});
  draft.tensors["fc_norm.1.weight"].values[3] = NAN;
  EXPECT_THAT(Refusal(draft), AllOf(HasSubstr("fc_norm.1.weight"), HasSubstr("element 3")));
  draft.tensors.erase("fc_norm.1.weight");
  EXPECT_THAT(Refusal(draft), HasSubstr("fc_norm.1.weight"));
  draft = MakeDraft(target_, {});
  draft.tensors["fc.weight"].shape = {24, 95};
  draft.tensors["fc.weight"].values.resize(24 * 95);
  EXPECT_THAT(Refusal(draft), AllOf(HasSubstr("fc.weight"), HasSubstr("95"), HasSubstr("96")));
}

TEST_F(MisfitTest, ADraftThatTakesStatesKeepsNone) {
  test::WriteTinyLlama(test::MakeTinyEagle3(target_, {.has_embedding = true}), dir_.path());
  EXPECT_THAT(Refusal(MakeDraft(target_, {})), HasSubstr("expected the target of"));
}

}  // namespace
}  // namespace coppice::model
