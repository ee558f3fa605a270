// docs/algorithms.md 8 with stop strings: a hypothesis ends at the token that completes one. Draft
// nodes do not know stop strings, so drafts go on below such tokens, and the verifiers must treat
// them as drafts whose parent is gone. All choices of production drafter and decoder are
// enumerated. (Seeded methods are compared with a second implementation by the tests on
// random_setting.h.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "decoding/layer/dsbd_wor.h"
#include "lab/exact/layered_distribution.h"
#include "lab/exact/tree_distribution.h"
#include "tests/testing/named_decode.h"
#include "tests/testing/toy_text.h"

namespace coppice::decoding {
namespace {

constexpr double kExact = 1e-12;

test::LogProbsOf Target(int vocab) {
  const test::HashLm lm{vocab, 5, 3, 36};
  return [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
}
test::LogProbsOf Draft(int vocab) {
  const test::HashLm lm{vocab, 5, 3, 36};
  return [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
}

// Tokens are "a", "b" and "ab".
TEST(StopStringsDistribution, EveryRuleOnTreesAndPaths) {
  std::vector<test::TreeMethod> methods = test::TreeMethods();
  methods.push_back({"rejection", VerifyRrsIid, ChildSampling::kIid});
  methods.push_back({"block_verification", nullptr, ChildSampling::kIid});
  for (const test::TreeMethod& method : methods) {
    const bool path = method.name == "rejection" || method.name == "block_verification";
    for (const std::vector<std::string>& stops :
         std::vector<std::vector<std::string>>{{"ba"}, {"a"}, {"abb", "aa"}}) {
      for (int min_tokens : {0, 2}) {
        SCOPED_TRACE(method.name + " " + stops[0]);
        test::TreeSetting setting;
        setting.params.draft_tree = path ? "chain" : "2-2";
        setting.params.max_tokens = 3;
        setting.params.min_tokens = min_tokens;
        setting.rule = method.rule;
        setting.distribution = setting.relied_on = method.distribution;
        setting.target = Target(2);
        setting.draft = Draft(2);
        test::SetToyStops(stops, 2, &setting.params);
        const test::ExactDistribution closed = test::MultinomialDistribution(setting);
        EXPECT_LE(test::TotalVariation(test::TreeDistribution(setting), closed), kExact);
        if (min_tokens == 0) {  // sequences do end early
          test::TreeSetting endless = setting;
          endless.params.stop_text = nullptr;
          EXPECT_GT(test::TotalVariation(test::MultinomialDistribution(endless), closed), 0.01);
        }
      }
    }
  }
}

test::LayeredSetting Layered(const char* method, sampling::DecodingKind kind, int width,
                             int layers) {
  test::LayeredSetting setting;
  setting.params.kind = kind;
  setting.params.method = FindMethod(method);
  setting.params.beam_width = width;
  setting.params.max_tokens = layers;
  setting.draft_width = 2;
  setting.draft_depth = layers - 1;
  setting.target = Target(2);
  setting.draft = Draft(2);
  return setting;
}

void ExpectLayersExact(test::LayeredSetting setting, bool refill = true) {
  setting.params.refill = refill;
  for (const std::vector<std::string>& stops :
       std::vector<std::vector<std::string>>{{"ba"}, {"a"}, {"bb", "aa"}}) {
    SCOPED_TRACE(stops[0]);
    test::SetToyStops(stops, 2, &setting.params);
    const bool with_replacement = setting.params.kind == sampling::DecodingKind::kBeamSampling;
    EXPECT_LT(
        test::LargestDifference(test::LayeredDistribution(setting),
                                test::ClosedFixedWidthDistribution(setting, with_replacement)),
        kExact);
  }
}

TEST(StopStringsDistribution, JointLayersOfDsbd) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = Layered("dsbd", sampling::DecodingKind::kBeamSampling, 2, 2);
    setting.removed = rule;
    ExpectLayersExact(setting);
    ExpectLayersExact(setting, /*refill=*/false);
    // Two drafted layers are verified in one round: the second below tokens that ended.
    setting = Layered("dsbd", sampling::DecodingKind::kBeamSampling, 1, 3);
    setting.removed = rule;
    ExpectLayersExact(setting);
  }
}

TEST(StopStringsDistribution, JointLayersWithReuse) {
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    test::LayeredSetting setting = Layered("dsbd_wor", kind, 2, 2);
    setting.rule = MakeDsbdWorRule;
    setting.drafts = DrawKind::kDistinct;
    ExpectLayersExact(setting);
  }
}

// No method looks past a stop string, with any draft: every hypothesis ends with the first token
// that completes one.
TEST(StopStringsDistribution, EveryMethodEndsAtTheFirstMatch) {
  int ended = 0, longest = 0;
  for (const MethodRow& row : Methods()) {
    for (sampling::DecodingKind kind : row.serves) {
      for (uint64_t seed = 0; seed < 60; ++seed) {
        test::NamedSetting setting;
        setting.params.kind = kind;
        setting.params.method = &row;
        if (kind != sampling::DecodingKind::kMultinomial) setting.params.beam_width = 3;
        setting.params.num_hypotheses = setting.params.beam_width;
        if (row.greedy_only && kind == sampling::DecodingKind::kMultinomial)
          setting.params.sampling.temperature = 0;
        if (row.form == DraftForm::kTree) setting.params.draft_tree = "2-2-1";
        setting.params.max_tokens = 10;
        setting.params.min_tokens = static_cast<int>(seed % 3) * 2;
        setting.params.seed = seed;
        setting.draft_width = row.form == DraftForm::kPath ? 1 : 4;
        setting.draft_depth = row.form == DraftForm::kNone ? 0 : 3;
        const test::HashLm lm{6, seed + 1, 4, seed + 50};
        setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
        setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
        test::SetToyStops(test::ToyStops(static_cast<int>(seed)), 6, &setting.params);
        for (const Hypothesis& hypothesis : test::RunNamed(setting).result) {
          absl::Span<const TokenId> path = hypothesis.tokens;
          ASSERT_EQ(hypothesis.finished, test::ToyTextEnds(setting.params, path)) << row.name;
          path.remove_suffix(1);
          ASSERT_FALSE(test::ToyTextEnds(setting.params, path)) << row.name;
          ended += hypothesis.finished ? 1 : 0;
          longest += hypothesis.finished ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(ended, 1000);
  EXPECT_GT(longest, 100);
}

}  // namespace
}  // namespace coppice::decoding
