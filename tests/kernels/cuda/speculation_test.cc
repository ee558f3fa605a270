// Speculative decoding of whole sequences over the simulated device: rows that came as candidate
// lists decide as whole rows do, and in exact mode drafts change nothing, bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::kernels {
namespace {

constexpr int kVocab = 400, kTop = 4;

struct Shape {
  std::string name, method;
  sampling::DecodingKind kind;
  int width;
  sampling::SamplingParams sampling;
  int head_stride = 1;   // the draft's head has every so many ids
  bool experts = false;  // of target and draft
  // How their weights are kept; if not "auto", the checkpoints are BF16.
  const char *target_weights = "auto", *draft_weights = "auto";

  bool in_blocks() const {
    return std::string(target_weights) != "auto" || std::string(draft_weights) != "auto";
  }
};

sampling::SamplingParams Sampling(double temperature, int top_k = 0, double top_p = 0) {
  sampling::SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  return sampling;
}

class SpeculationTest : public testing::TestWithParam<Shape> {
 protected:
  SpeculationTest() {
    Write(target_.path(), 1, 2, 1);
    Write(draft_.path(), 2, 1, GetParam().head_stride);
  }
  static void Write(const std::string& dir, uint64_t seed, int layers, int head_stride) {
    if (GetParam().experts) {
      test::WriteTinyLlama(
          test::MakeTinyFamily("qwen3_moe", {.layers = layers, .vocab = kVocab, .seed = seed}),
          dir);
      return;
    }
    test::TinyLlamaOptions options;
    options.vocab = kVocab;
    options.layers = layers;
    options.seed = seed;
    if (GetParam().in_blocks()) options.dtype = "BF16";
    test::TinyLlama model = test::MakeTinyLlama(options);
    std::vector<int> ids;
    for (int id = 0; id < kVocab; id += head_stride) ids.push_back(id);
    if (head_stride > 1) test::ReduceHead(&model, ids);
    test::WriteTinyLlama(model, dir);
  }
  test::CheckedReplica Load(const std::string& draft, bool always_list) const {
    lab::LocalReplicaOptions options = test::CheckedReplica::OptionsOf(target_.path(), draft);
    options.backend = "cuda";
    options.exact = true;  // a draft changes how many rows a step has
    options.kv_bytes = 1 << 20;
    options.always_list = always_list;
    options.target_weights = GetParam().target_weights;
    options.draft_weights = GetParam().draft_weights;
    return test::CheckedReplica(options);
  }
  static decoding::DecodingParams Params(uint64_t seed) {
    decoding::DecodingParams params;
    params.kind = GetParam().kind;
    params.method = decoding::FindMethod(GetParam().method);
    params.beam_width = params.num_hypotheses = GetParam().width;
    params.sampling = GetParam().sampling;
    params.max_tokens = 10;
    params.min_tokens = 4;  // until then the stop token has a bias
    params.stop_ids = {2, 40};
    params.seed = seed;
    return params;
  }
  // The same tokens with the same scores, bit for bit.
  static void ExpectSame(const test::CheckedReplica::Outcome& one,
                         const test::CheckedReplica::Outcome& other) {
    const std::vector<decoding::Hypothesis>&a = one.hypotheses, &b = other.hypotheses;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].tokens, b[i].tokens);
      EXPECT_EQ(a[i].joint_log_probability, b[i].joint_log_probability);
      EXPECT_EQ(a[i].finished, b[i].finished);
      ASSERT_EQ(one.scores[i].size(), other.scores[i].size());
      for (size_t t = 0; t < one.scores[i].size(); ++t) {
        EXPECT_EQ(one.scores[i][t].log_prob, other.scores[i][t].log_prob);
        EXPECT_EQ(one.scores[i][t].top, other.scores[i][t].top);
        EXPECT_EQ(one.scores[i][t].top.size(), static_cast<size_t>(kTop));
      }
    }
  }
  test::TempDir target_, draft_;
};

TEST_P(SpeculationTest, CandidateListsAndDraftsChangeNothing) {
  test::CheckedReplica whole = Load(draft_.path(), /*always_list=*/false);
  test::CheckedReplica listing = Load(draft_.path(), /*always_list=*/true);
  test::CheckedReplica same_draft = Load(target_.path(), /*always_list=*/true);
  int passes_plain = 0, passes_same = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const std::vector<TokenId> prompt = {5, 6, static_cast<TokenId>(7 + seed)};
    const auto plain = whole.Decode(prompt, Params(seed), 0, 0, kTop);
    ExpectSame(listing.Decode(prompt, Params(seed), 0, 0, kTop), plain);
    ExpectSame(whole.Decode(prompt, Params(seed), 6, 3, kTop), plain);
    ExpectSame(listing.Decode(prompt, Params(seed), 6, 3, kTop), plain);
    const auto same = same_draft.Decode(prompt, Params(seed), 2 * GetParam().width, 4, kTop);
    ExpectSame(same, plain);
    passes_plain += plain.passes;
    passes_same += same.passes;
  }
  EXPECT_LT(passes_same, passes_plain) << "a draft equal to the target must save passes";
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SpeculationTest,
    testing::Values(
        Shape{"Draws", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, Sampling(0.9)},
        Shape{"TopK", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 2, Sampling(1, 20)},
        Shape{"TopP", "gumbel_coupling", sampling::DecodingKind::kMultinomial, 1,
              Sampling(0.7, 12, 0.9)},
        Shape{"BeamSearch", "speculative_beam_search", sampling::DecodingKind::kBeamSearch, 4,
              Sampling(1)},
        Shape{"DraftVocabulary", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4,
              Sampling(0.9), 7},
        Shape{"DraftVocabularyTopP", "gumbel_coupling", sampling::DecodingKind::kMultinomial, 1,
              Sampling(0.7, 0, 0.9), 40},
        Shape{"WithoutReplacement", "gumbel_top_k",
              sampling::DecodingKind::kBeamSamplingWithoutReplacement, 3, Sampling(1)},
        Shape{"Experts", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, Sampling(0.9),
              1, true},
        Shape{"BlockDraftVocabulary", "gumbel_coupling", sampling::DecodingKind::kMultinomial, 1,
              Sampling(0.9), 7, false, "auto", "int8"},
        Shape{"BlocksBoth", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 2,
              Sampling(0.9), 1, false, "int4", "int8"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice::kernels
