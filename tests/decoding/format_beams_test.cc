// Beams sampled with formats (docs/algorithms.md 1 and 3), drafted and not: G-tests against the
// distribution of beam sampling on a model that has the format in its rows.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/exact/layered_distribution.h"
#include "tests/decoding/format_setting.h"
#include "tests/testing/g_test.h"
#include "tests/testing/last_layer.h"

namespace coppice::decoding {
namespace {

using namespace format_setting;  // NOLINT: the whole file is about it

constexpr double kBias = 0.05;  // total variation that the G-tests see

test::ExactDistribution BeamDistribution(const test::NamedSetting& setting,
                                         const grammar::Part& whole) {
  return test::LastLayerDistribution(test::WithoutFormat(setting.params), ClosedRows(whole));
}

test::NamedSetting Beams(const MethodRow& row, sampling::DecodingKind kind,
                         const grammar::Part& whole, bool draft_knows, int draft_depth) {
  test::NamedSetting setting = Named(row, kind, whole, draft_knows);
  setting.draft_depth = draft_depth;
  setting.logits_in_f32 = draft_depth % 2 == 0;  // read by lists
  return setting;
}

TEST(FormatDistribution, SampledBeamsOfEveryLosslessMethodWithAnyDraft) {
  for (const sampling::DecodingKind kind :
       {sampling::DecodingKind::kBeamSampling,
        sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    int methods = 0, distributions = 0;
    for (const MethodRow* row : test::MethodsThatServe(kind)) {
      if (!row->lossless) continue;
      for (const NamedLanguage& language : Languages()) {
        ++distributions;
        if (distributions % 2 == 0 && !test::IsLongRun()) continue;
        SCOPED_TRACE(testing::Message() << row->name << " " << sampling::DecodingKindName(kind)
                                        << " " << language.name);
        const auto beams = [&](bool draft_knows, int depth) {
          return Beams(*row, kind, language.whole, draft_knows, depth);
        };
        const test::ExactDistribution distribution =
            BeamDistribution(beams(true, 2), language.whole);
        EXPECT_TRUE(test::LastLayerFits(beams(true, 2), distribution, kBias)) << "known";
        const int depth = distributions / 2 % 2;
        EXPECT_TRUE(test::LastLayerFits(beams(false, depth), distribution, kBias))
            << (depth > 0 ? "not known" : "no drafts");
      }
      ++methods;
    }
    EXPECT_GE(methods, 3);
  }
}

// One or two tokens are allowed in the first layer, and there are three beams.
TEST(FormatDistribution, FewerTokensThanBeams) {
  for (const sampling::DecodingKind kind :
       {sampling::DecodingKind::kBeamSampling,
        sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    for (const MethodRow* row : test::MethodsThatServe(kind)) {
      if (!row->lossless) continue;
      for (const size_t language : {0, 2}) {
        SCOPED_TRACE(testing::Message() << row->name << " " << sampling::DecodingKindName(kind));
        const grammar::Part whole = Languages()[language].whole;
        test::NamedSetting setting = Beams(*row, kind, whole, language == 0, 2);
        setting.params.beam_width = setting.params.num_hypotheses = 3;
        setting.params.max_tokens = 3;  // the distribution of two layers may have one outcome
        EXPECT_TRUE(test::LastLayerFits(setting, BeamDistribution(setting, whole), kBias));
      }
    }
  }
}

// The target's rows have what another path allows, and the G-test sees it.
TEST(FormatDistributionControl, RowsWithTheFormatOfAnotherPathAreSeenInBeams) {
  for (const char* method : {"dsbd", "gumbel_coupling"}) {
    const grammar::Part whole = Languages()[4].whole;
    const test::NamedSetting right =
        Beams(*FindMethod(method), sampling::DecodingKind::kBeamSampling, whole, true, 2);
    const test::ExactDistribution distribution = BeamDistribution(right, whole);
    for (const bool prompt_alone : {true, false}) {
      test::NamedSetting wrong = right;
      const Models models = FormattedModels(whole, 5, true, &wrong.params);
      wrong.params = test::WithoutFormat(right.params);
      wrong.draft = test::Remembered(models.draft);
      wrong.target = test::Remembered([=](uint64_t hash) {
        std::vector<TokenId> path = models.book->Tokens(hash);
        if (prompt_alone) path.clear();
        if (!path.empty()) path.pop_back();
        return models.format->Masked(models.target(hash), path);
      });
      EXPECT_FALSE(test::LastLayerFits(wrong, distribution, kBias))
          << method << (prompt_alone ? " prompt" : " last token");
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
