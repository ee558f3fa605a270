// Invariants of tests/decoding/README.md 6 for the layer rules of 5.1-5.5: DSBD under both rules of
// 5.2, and reuse of distinct drafts for targets with and without replacement. All choices are
// enumerated, and the distributions of the draws are checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "decoding/layer/dsbd_layer.h"
#include "decoding/layer/dsbd_wor_layer.h"
#include "tests/testing/checked_choices.h"
#include "tests/testing/joint_layer.h"
#include "tests/testing/row_forms.h"

namespace coppice::decoding {
namespace {

using namespace test::joint_layer;  // NOLINT: the whole file is about its layers

struct Method {
  const char* name;
  bool distinct_drafts;
  bool with_replacement;
  LayerResult (*verify)(const LayerInput& input, ChoiceSource* choices);
};
void PrintTo(const Method& method, std::ostream* out) { *out << method.name; }

const std::vector<Method>& LayerMethods() {
  static const auto* methods = new std::vector<Method>{
      {"dsbd E", false, true,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyDsbdLayer(input, RemovedParents::kReject, WidthRule(), choices);
       }},
      {"dsbd N", false, true,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyDsbdLayer(input, RemovedParents::kRenormalise, WidthRule(), choices);
       }},
      {"reuse E", true, true,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyWithReuse(input, RemovedParents::kReject, choices);
       }},
      {"reuse N", true, true,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyWithReuse(input, RemovedParents::kRenormalise, choices);
       }},
      {"distinct reuse E", true, false,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyDistinctWithReuse(input, RemovedParents::kReject, {}, choices);
       }},
      {"distinct reuse N", true, false,
       [](const LayerInput& input, ChoiceSource* choices) {
         return VerifyDistinctWithReuse(input, RemovedParents::kRenormalise, {}, choices);
       }},
  };
  return *methods;
}

// One beam with two rows of masses, which are not normalised.
struct OneBeam {
  OneBeam(const std::vector<double>& p_mass, const std::vector<double>& q_mass)
      : p_row(test::SparseRow(p_mass)), q_row(test::SparseRow(q_mass)) {
    p.rows.resize(1);
    p.rows[0].sparse = &p_row;
    q.rows.resize(1);
    q.rows[0].sparse = &q_row;
  }
  OneBeam(const OneBeam&) = delete;
  sampling::Distribution p_row, q_row;
  LayerDistribution p, q;
};

std::vector<Entry> Draw(const Method& method, const LayerDistribution& q, int count,
                        ChoiceSource* choices) {
  if (method.distinct_drafts)
    return choices->ChooseDistinct(sampling::Domain::kDraft, /*slot=*/0, q, count);
  std::vector<Entry> drafts;
  for (int j = 0; j < count; ++j)
    drafts.push_back(choices->Choose(sampling::Domain::kDraft, j, q).entry);
  return drafts;
}

constexpr double kRounding = 1e-13;  // a coin of probability 1 - 1e-16 can fail

// The distribution of the outputs. Visits every result of drafting and verifying.
using Visit = std::function<void(const LayerResult&, const test::CheckedChoices&)>;
test::ExactDistribution VisitLayers(const Method& method, const OneBeam& rows, int width,
                                    int drafts, const Visit& visit = nullptr,
                                    double tolerance = 1e-12) {
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    test::CheckedChoices checked(choices, tolerance);
    const std::vector<Entry> drawn = Draw(method, rows.q, drafts, &checked);
    const LayerResult result = method.verify({&rows.p, &rows.q, drawn, width}, &checked);
    if (visit && choices->probability() > kRounding) visit(result, checked);
    std::vector<uint64_t> outcome;
    for (const Entry& entry : Entries(result)) outcome.push_back(Key(entry));
    distribution[outcome] += choices->probability();
  });
  return distribution;
}

void ExpectTargetDistribution(const Method& method, const OneBeam& rows, int width, int drafts,
                              double tolerance = 1e-12) {
  const int entries = static_cast<int>(rows.p_row.size());
  test::ExactDistribution want;
  test::VisitLayerOutcomes(rows.p, method.with_replacement ? width : std::min(width, entries),
                           method.with_replacement,
                           [&](const std::vector<Entry>& drawn, double probability) {
                             std::vector<uint64_t> outcome;
                             for (const Entry& entry : drawn) outcome.push_back(Key(entry));
                             want[outcome] += probability;
                           });
  const test::ExactDistribution distribution =
      VisitLayers(method, rows, width, drafts, nullptr, tolerance);
  EXPECT_LT(test::LargestDifference(distribution, want), tolerance)
      << "W " << width << " m " << drafts;
}

class LayerInvariants : public testing::TestWithParam<Method> {};

// p = q. With replacement W is 1, because the second of two distinct drafts has another
// distribution.
TEST_P(LayerInvariants, EqualDistributionsAcceptWithoutAResidualDraw) {
  const OneBeam rows({0.5, 0.3, 0.15, 0.05}, {0.5, 0.3, 0.15, 0.05});
  const bool one = GetParam().distinct_drafts && GetParam().with_replacement;
  for (int width = 1; width <= (one ? 1 : 3); ++width) {
    VisitLayers(GetParam(), rows, width, 3,
                [&](const LayerResult& result, const test::CheckedChoices& checked) {
                  EXPECT_TRUE(result.full);
                  EXPECT_EQ(result.residual_draws, 0);
                  EXPECT_TRUE(checked.residuals().empty());
                  EXPECT_EQ(result.tested, width);
                  for (int w = 0; w < width; ++w) EXPECT_EQ(result.outputs[w].draft, w);
                });
  }
}

TEST_P(LayerInvariants, DisjointSupportsAcceptNothingAndLeaveTheTarget) {
  const OneBeam rows({0.6, 0.3, 0.1, 0, 0}, {0, 0, 0, 0.7, 0.3});
  for (int width : {1, 2}) {
    VisitLayers(
        GetParam(), rows, width, 3,
        [&](const LayerResult& result, const test::CheckedChoices& checked) {
          EXPECT_FALSE(result.full);
          EXPECT_EQ(result.overlap, 0);
          for (const RuleOutput& output : result.outputs) EXPECT_EQ(output.draft, -1);
          ASSERT_FALSE(checked.residuals().empty());
          for (const auto& [entry, mass] : checked.residuals()[0])
            EXPECT_NEAR(mass, sampling::Exp(LogMass(rows.p, {entry.first, entry.second})), 1e-15);
          EXPECT_EQ(checked.residuals()[0].size(), rows.p_row.size());
        });
  }
}

TEST_P(LayerInvariants, ExtremeRowsKeepTheDistribution) {
  const std::vector<double> some = {0.5, 0.3, 0.2};
  for (int width : {1, 2, 4}) {  // 4 is more outputs than entries
    for (int drafts : {1, 3}) {  // 3 is more drafts than the proposal has tokens
      ExpectTargetDistribution(GetParam(), OneBeam({0, 1, 0}, some), width, drafts);
      ExpectTargetDistribution(GetParam(), OneBeam(some, {0, 1, 0}), width, drafts);
      ExpectTargetDistribution(GetParam(), OneBeam({0, 1, 0}, {1, 0, 0}), width, drafts);
      ExpectTargetDistribution(GetParam(), OneBeam({0, 1, 0}, {0, 1, 0}), width, drafts);
      ExpectTargetDistribution(GetParam(), OneBeam(some, {0.6, 0, 0.4}), width, drafts);
      ExpectTargetDistribution(GetParam(), OneBeam({0.9, 0.1, 0}, {0, 0.2, 0.8}), width, drafts);
    }
  }
}

// Rows that sum to 1 - 1e-7, as f32 rows may.
TEST_P(LayerInvariants, RowsOfF32KeepTheDistributionToTheirPrecision) {
  for (int width : {1, 2}) {
    ExpectTargetDistribution(GetParam(), OneBeam({0.5 - 1e-7, 0.3, 0.2}, {0.2, 0.5, 0.3 - 1e-7}),
                             width, 3, 1e-6);
    ExpectTargetDistribution(GetParam(), OneBeam({0.5 - 1e-7, 0.3, 0.2}, {0.5, 0.3, 0.2}), width, 3,
                             1e-6);
    ExpectTargetDistribution(GetParam(), OneBeam({0.5, 0.3, 0.2}, {0.5 - 1e-7, 0.3, 0.2}), width, 3,
                             1e-6);
  }
}

// A residual of mass 1e-16 counts as undefined: the previous distribution stays, and nothing is
// divided by that mass.
TEST_P(LayerInvariants, ResidualsOfNextToNothingKeepTheDistribution) {
  const double near = 1.2e-16;
  for (int width : {1, 2}) {
    ExpectTargetDistribution(GetParam(), OneBeam({0.5, 0.3, 0.2}, {0.5 - near, 0.3, 0.2 + near}),
                             width, 3);
    ExpectTargetDistribution(GetParam(), OneBeam({0.5, 0.3, 0.2}, {0.5 + near, 0.3, 0.2 - near}),
                             width, 3);
    ExpectTargetDistribution(GetParam(), OneBeam({1 - 1e-15, 1e-15}, {1e-15, 1 - 1e-15}), width, 2);
  }
}

TEST_P(LayerInvariants, WholeAndListedRowsDecideAlike) {
  for (int hole : {0, 3}) {
    for (int beams : {1, 3}) {
      const test::RowForms rows(beams, /*vocab=*/60, /*support=*/12, /*seed=*/7 + beams, hole);
      int accepted = 0, drawn = 0;
      for (uint64_t seed = 0; seed < 400; ++seed) {
        SeededChoices choices(seed);
        choices.BeginRound(2);
        const std::vector<Entry> drafts = Draw(GetParam(), rows.q, 5, &choices);
        const LayerResult whole = GetParam().verify({&rows.p_whole, &rows.q, drafts, 3}, &choices);
        const LayerResult listed =
            GetParam().verify({&rows.p_listed, &rows.q, drafts, 3}, &choices);
        ASSERT_EQ(whole.full, listed.full);
        ASSERT_EQ(whole.tested, listed.tested);
        ASSERT_NEAR(whole.overlap, listed.overlap, 1e-12);
        ASSERT_EQ(whole.outputs.size(), listed.outputs.size());
        for (size_t w = 0; w < whole.outputs.size(); ++w) {
          ASSERT_EQ(whole.outputs[w].entry, listed.outputs[w].entry) << "seed " << seed;
          ASSERT_EQ(whole.outputs[w].draft, listed.outputs[w].draft);
          ++(whole.outputs[w].draft >= 0 ? accepted : drawn);
        }
      }
      EXPECT_GT(accepted, 50);
      EXPECT_GT(drawn, 50);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerInvariants, testing::ValuesIn(LayerMethods()),
                         [](const testing::TestParamInfo<Method>& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace coppice::decoding
