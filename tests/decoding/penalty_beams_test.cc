// Beams sampled with penalties (docs/algorithms.md 1 and 3), drafted and not: G-tests against the
// distribution of beam sampling on a model whose rows have the penalties already.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lab/exact/layered_distribution.h"
#include "tests/decoding/penalty_setting.h"
#include "tests/testing/g_test.h"
#include "tests/testing/last_layer.h"

namespace coppice::decoding {
namespace {

using namespace penalty_setting;  // NOLINT: the whole file is about it

test::NamedSetting Beams(const MethodRow& row, sampling::DecodingKind kind, int draft_depth) {
  test::NamedSetting setting = Named(row, kind, 2);
  setting.draft_depth = draft_depth;
  return setting;
}

// The distribution of an undrafted decode: from the definition of beam sampling on the penalised
// model.
test::ExactDistribution BeamDistribution(const test::NamedSetting& setting) {
  return test::LastLayerDistribution(test::WithoutPenalties(setting.params),
                                     PenalisedModels(2, 5, setting.params).closed);
}

TEST(PenaltyDistribution, SampledBeamsOfEveryLosslessMethodWithAndWithoutDrafts) {
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    int methods = 0;
    for (const MethodRow* row : test::MethodsThatServe(kind)) {
      if (!row->lossless) continue;
      SCOPED_TRACE(testing::Message() << row->name << " " << sampling::DecodingKindName(kind));
      const test::NamedSetting drafted = Beams(*row, kind, 2);
      const test::ExactDistribution distribution = BeamDistribution(drafted);
      EXPECT_TRUE(test::LastLayerFits(drafted, distribution, kBias));
      EXPECT_TRUE(test::LastLayerFits(Beams(*row, kind, 0), distribution, kBias));
      ++methods;
    }
    EXPECT_GE(methods, 3);
  }
}

// The target's rows have the penalties of another path than their own, and the G-test sees it: that
// of the prompt alone, or a path whose last token is forgotten.
TEST(PenaltyDistributionControl, RowsWithThePenaltiesOfAnotherPathAreSeenInBeams) {
  for (const char* method : {"dsbd", "gumbel_coupling"}) {
    const test::NamedSetting right =
        Beams(*FindMethod(method), sampling::DecodingKind::kBeamSampling, 2);
    const test::ExactDistribution distribution = BeamDistribution(right);
    const auto book = std::make_shared<const test::PathBook>(2, 4);
    for (const bool prompt_alone : {true, false}) {
      test::NamedSetting wrong = right;
      wrong.params = test::WithoutPenalties(right.params);
      wrong.target =
          test::Remembered([=, target = right.target, params = right.params](uint64_t hash) {
            std::vector<TokenId> path = book->Tokens(hash);
            if (prompt_alone) path.clear();
            if (!path.empty()) path.pop_back();
            return test::PenalisedRow(target(hash), params, kPrompt, path);
          });
      EXPECT_FALSE(test::LastLayerFits(wrong, distribution, kBias))
          << method << (prompt_alone ? " prompt" : " last token");
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
