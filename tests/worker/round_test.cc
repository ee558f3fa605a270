// Whole rounds with real (tiny) models and without sockets. The result must not depend on the
// draft.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 24;
constexpr TokenId kEos = 2;

void Write(const std::string& dir, uint64_t seed, int layers) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.layers = layers;
  options.seed = seed;
  test::WriteTinyLlama(test::MakeTinyLlama(options), dir);
}

struct Shape {
  std::string method;
  sampling::DecodingKind kind;
  int width;
};

class RoundTest : public ::testing::TestWithParam<Shape> {
 protected:
  RoundTest() {
    Write(target_.path(), 1, 2);
    Write(draft_.path(), 2, 1);
  }
  decoding::DecodingParams Params(uint64_t seed) const {
    decoding::DecodingParams params;
    params.kind = GetParam().kind;
    params.method = decoding::FindMethod(GetParam().method);
    params.beam_width = GetParam().width;
    params.num_hypotheses = GetParam().width;
    params.max_tokens = 40;
    params.stop_ids = {kEos};
    params.seed = seed;
    return params;
  }
  static std::vector<TokenId> Prompt(uint64_t seed) {
    std::vector<TokenId> prompt;
    for (uint64_t i = 0; i < 3 + seed * 7 % 40; ++i) {
      prompt.push_back(static_cast<TokenId>(3 + (seed * 31 + i * 17) % (kVocab - 3)));
    }
    return prompt;
  }
  static void ExpectSame(const std::vector<decoding::Hypothesis>& a,
                         const std::vector<decoding::Hypothesis>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].tokens, b[i].tokens);
      EXPECT_EQ(a[i].joint_log_probability, b[i].joint_log_probability);  // bit for bit
      EXPECT_EQ(a[i].finished, b[i].finished);
    }
  }
  test::TempDir target_, draft_;
};

TEST_P(RoundTest, DraftsChangeNoTokenAndNoScore) {
  test::CheckedReplica random_draft(target_.path(), draft_.path());
  test::CheckedReplica same_draft(target_.path(), target_.path());
  int passes_plain = 0, passes_same = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto plain = random_draft.Decode(Prompt(seed), Params(seed), 0, 0);
    for (const auto& [width, depth] :
         {std::pair{GetParam().width, 1}, {2 * GetParam().width, 4}, {7, 3}}) {
      ExpectSame(random_draft.Decode(Prompt(seed), Params(seed), width, depth).hypotheses,
                 plain.hypotheses);
    }
    const auto same = same_draft.Decode(Prompt(seed), Params(seed), 2 * GetParam().width, 4);
    ExpectSame(same.hypotheses, plain.hypotheses);
    passes_plain += plain.passes;
    passes_same += same.passes;
  }
  EXPECT_LT(passes_same * 3, passes_plain * 2) << "a draft equal to the target must save passes";
  EXPECT_EQ(random_draft.target_blocks_used(), 0);
  EXPECT_EQ(random_draft.draft_blocks_used(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, RoundTest,
    ::testing::Values(Shape{"gumbel_coupling", sampling::DecodingKind::kMultinomial, 1},
                      Shape{"gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4},
                      Shape{"speculative_beam_search", sampling::DecodingKind::kBeamSearch, 4},
                      Shape{"speculative_beam_search", sampling::DecodingKind::kBeamSearch, 2},
                      Shape{"gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement,
                            3}),
    [](const auto& info) {
      return info.param.method + "_" + std::string(sampling::DecodingKindName(info.param.kind)) +
             "_W" + std::to_string(info.param.width);
    });

// DSBD keeps the distribution but not the text. So this test checks only that rounds go on, that
// drafts are accepted and that nothing leaks.
TEST(DsbdRoundTest, RunsOnRealModelsAndAcceptsAnEqualDraft) {
  test::TempDir target;
  Write(target.path(), 1, 2);
  test::CheckedReplica replica(target.path(), target.path());
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("dsbd");
  params.beam_width = params.num_hypotheses = 2;
  params.max_tokens = 40;
  params.stop_ids = {kEos};
  int layers = 0, passes = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    params.seed = seed;
    const auto outcome = replica.Decode({5, 6, 7}, params, 4, 4);
    EXPECT_FALSE(outcome.hypotheses.empty());
    layers += outcome.layers;
    passes += outcome.passes;
  }
  EXPECT_GT(layers, 1.5 * passes);
  EXPECT_EQ(replica.target_blocks_used(), 0);
}

}  // namespace
}  // namespace coppice::worker
