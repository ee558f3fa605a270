// Invariants of tests/decoding/README.md 6 for the single-sequence verifiers. And whole decodes by
// every method of docs/algorithms.md 4, which check what a worker relies on after every round.
#include "decoding/tree/node_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "decoding/method.h"
#include "decoding/tree/child_sampling.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/tree_distribution.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/checked_choices.h"
#include "tests/testing/decode_loop.h"
#include "tests/testing/row_forms.h"

namespace coppice::decoding {
namespace {

// Rows of masses, which are not normalised.
struct Rows {
  Rows(const std::vector<double>& p_mass, const std::vector<double>& q_mass)
      : mass(p_mass), p_row(test::SparseRow(p_mass)), q(test::SparseRow(q_mass)) {
    p.rows.resize(1);
    p.rows[0].sparse = &p_row;
  }
  Rows(const Rows&) = delete;
  std::vector<double> mass;
  sampling::Distribution p_row, q;
  LayerDistribution p;
};

constexpr double kRounding = 1e-13;  // a coin of probability 1 - 1e-16 can fail

// Checks the distribution of the output and the distributions of the draws. Returns P(the output is
// a draft).
using Visit = std::function<void(const NodeVerdict&, const test::CheckedChoices&)>;
double Acceptance(const test::TreeMethod& pair, const Rows& rows, int n, double tolerance = 1e-12,
                  const Visit& visit = nullptr) {
  double accepted = 0;
  std::vector<double> sampling(rows.mass.size(), 0.0);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    test::CheckedChoices checked(choices, tolerance);
    const std::vector<TokenId> drafts =
        DrawChildren(pair.distribution, rows.q, /*hash=*/0, n, &checked);
    const NodeVerdict verdict = pair.rule({&rows.p, &rows.q, drafts}, &checked);
    sampling.at(verdict.token) += choices->probability();
    if (verdict.draft >= 0) accepted += choices->probability();
    if (visit && choices->probability() > kRounding) visit(verdict, checked);
  });
  for (int v = 0; v < sampling.size(); ++v) EXPECT_NEAR(sampling[v], rows.mass[v], tolerance) << v;
  EXPECT_FALSE(std::isnan(accepted));
  return accepted;
}

class NodeRuleInvariants : public testing::TestWithParam<test::TreeMethod> {
 protected:
  int MostDrafts() const {
    if (GetParam().distribution == ChildSampling::kSpecHub) return 2;
    return GetParam().rule == VerifyLuceOt ? 3 : 4;  // Luce-OT needs a quadrature for every list
  }
};

// p = q (for greedy drafts p = q'): a draft is accepted, and no residual is drawn from.
TEST_P(NodeRuleInvariants, EqualRowsAcceptWithoutAResidualDraw) {
  const ChildSampling sampling = GetParam().distribution;
  if (sampling == ChildSampling::kMostLikely) return;  // no coin, no residual
  const std::vector<double> q = {0.4, 0.3, 0.2, 0.06, 0.04};
  for (int n = 1; n <= MostDrafts(); ++n) {
    std::vector<double> p = q;
    if (sampling == ChildSampling::kGreedy || sampling == ChildSampling::kSpecHub) {
      EXPECT_NEAR(Acceptance(GetParam(), Rows(p, q), n), 1, 1e-12);  // residual hits on T count
      double rest = 0;
      for (int v = n - 1; v < p.size(); ++v) rest += p[v];
      for (int v = 0; v < p.size(); ++v) p[v] = v < n - 1 ? 0 : p[v] / rest;
    }
    const auto expect_no_residual = [](const NodeVerdict& verdict,
                                       const test::CheckedChoices& checked) {
      EXPECT_EQ(verdict.residual_draws, 0);
      EXPECT_TRUE(checked.residuals().empty());
    };
    EXPECT_NEAR(Acceptance(GetParam(), Rows(p, q), n, 1e-12, expect_no_residual), 1, 1e-12);
  }
}

TEST_P(NodeRuleInvariants, DisjointSupportsAcceptNothingAndLeaveTheTarget) {
  const Rows rows({0.6, 0.3, 0.1, 0, 0, 0}, {0, 0, 0, 0.5, 0.3, 0.2});
  for (int n = 1; n <= MostDrafts(); ++n) {
    const double accepted = Acceptance(
        GetParam(), rows, n, 1e-12, [&](const NodeVerdict&, const test::CheckedChoices& checked) {
          for (const test::CheckedChoices::EntryDistribution& residual : checked.residuals()) {
            EXPECT_EQ(residual.size(), rows.p_row.size());
            for (const auto& [entry, mass] : residual)
              EXPECT_NEAR(mass, rows.mass[entry.second], 1e-15);
          }
        });
    EXPECT_EQ(accepted, 0);
  }
}

TEST_P(NodeRuleInvariants, OneHotRowsAndShortSupportsKeepTheDistribution) {
  const std::vector<double> some = {0.5, 0.3, 0.2};
  for (int n = 1; n <= MostDrafts(); ++n) {
    Acceptance(GetParam(), Rows({0, 1, 0}, {0.5, 0.2, 0.3}), n);                // one-hot p
    EXPECT_NEAR(Acceptance(GetParam(), Rows(some, {0, 1, 0}), n), 0.3, 1e-12);  // one-hot q
    EXPECT_NEAR(Acceptance(GetParam(), Rows({0, 1, 0}, {0, 1, 0}), n), 1, 1e-12);
    EXPECT_EQ(Acceptance(GetParam(), Rows({0, 1, 0}, {1, 0, 0}), n), 0);
    Acceptance(GetParam(), Rows(some, {0.4, 0.6, 0}), n);  // more drafts than tokens
    Acceptance(GetParam(), Rows({0.7, 0, 0.3}, {0, 0.6, 0.4}), n);
  }
}

// Rows that sum to 1 - 1e-7, as f32 rows may.
TEST_P(NodeRuleInvariants, RowsOfF32KeepTheDistributionToTheirPrecision) {
  for (int n = 1; n <= std::min(3, MostDrafts()); ++n) {
    Acceptance(GetParam(), Rows({0.5 - 1e-7, 0.3, 0.2}, {0.2, 0.5, 0.3 - 1e-7}), n, 1e-6);
    Acceptance(GetParam(), Rows({0.5 - 1e-7, 0.3, 0.2}, {0.5, 0.3, 0.2}), n, 1e-6);
    Acceptance(GetParam(), Rows({0.5, 0.3, 0.2}, {0.5 - 1e-7, 0.3, 0.2}), n, 1e-6);
  }
}

// A residual of mass 1e-16 counts as undefined: the previous distribution stays, and nothing is
// divided by that mass.
TEST_P(NodeRuleInvariants, ResidualsOfNextToNothingKeepTheDistribution) {
  const double near = 1.2e-16;
  for (int n = 1; n <= std::min(3, MostDrafts()); ++n) {
    Acceptance(GetParam(), Rows({0.5, 0.3, 0.2}, {0.5 - near, 0.3, 0.2 + near}), n);
    Acceptance(GetParam(), Rows({0.5, 0.3, 0.2}, {0.5 + near, 0.3, 0.2 - near}), n);
    Acceptance(GetParam(), Rows({1 - 1e-15, 1e-15, 0}, {1e-15, 1 - 1e-15, 0}), n);
  }
}

TEST_P(NodeRuleInvariants, WholeAndListedRowsDecideAlike) {
  for (int hole : {0, 3}) {
    const test::RowForms rows(/*beams=*/1, /*vocab=*/60, /*support=*/12, /*seed=*/3, hole);
    int accepted = 0;
    constexpr int kSeeds = 150;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SeededChoices choices(seed);
      choices.BeginRound(1);
      const std::vector<TokenId> drafts = DrawChildren(GetParam().distribution, rows.proposals[0],
                                                       1000, MostDrafts() - 1, &choices);
      const NodeVerdict whole =
          GetParam().rule({&rows.p_whole, &rows.proposals[0], drafts}, &choices);
      const NodeVerdict listed =
          GetParam().rule({&rows.p_listed, &rows.proposals[0], drafts}, &choices);
      ASSERT_EQ(whole.token, listed.token) << "seed " << seed;
      ASSERT_EQ(whole.draft, listed.draft);
      ASSERT_EQ(whole.tested, listed.tested);
      ASSERT_EQ(whole.residual_draws, listed.residual_draws);
      accepted += whole.draft >= 0;
    }
    EXPECT_GT(accepted, 30);
    EXPECT_LT(accepted, kSeeds - 10);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NodeRuleInvariants, testing::ValuesIn(test::TreeMethods()),
                         [](const testing::TestParamInfo<test::TreeMethod>& info) {
                           return info.param.name;
                         });

// The lossless methods with rejection for one sequence. Greedy and seeded ones also serve beams.
std::vector<const MethodRow*> SectionFourMethods() {
  std::vector<const MethodRow*> rows;
  for (const MethodRow& row : Methods()) {
    const bool one_sequence =
        row.serves == std::vector<sampling::DecodingKind>{sampling::DecodingKind::kMultinomial};
    if (one_sequence && row.lossless) rows.push_back(&row);
  }
  return rows;
}

TEST(SectionFour, DecodesByNameKeepTheirPromises) {
  for (const MethodRow* row : SectionFourMethods()) {
    SCOPED_TRACE(std::string(row->name));
    for (uint64_t seed = 0; seed < 20; ++seed) {
      test::HashLm lm{7, 3 + seed, 4, 9};
      DecodingParams params;
      params.method = row;
      params.seed = seed;
      params.max_tokens = 1 + static_cast<int>(seed % 12);
      params.stop_ids = {static_cast<TokenId>(seed % 3)};
      params.min_tokens = static_cast<int>(seed % 2);
      if (row->form == DraftForm::kTree && row->most_children == 0 && seed % 2 == 0)
        params.draft_tree = seed % 4 == 0 ? "eagle" : "3-2-1";
      const test::DecodeRun run = test::RunDecode(MakeBeamDecoder(params).value(), params, lm,
                                                  test::DraftQuality::kGood, 2, 4);
      ASSERT_EQ(run.result.size(), 1u);
      EXPECT_LE(run.result[0].tokens.size(), params.max_tokens);
    }
  }
}

// One-hot rows give the argmax, whatever the drafts. A draft equal to the target is kept whole.
TEST(SectionFour, TemperatureZeroIsGreedyAndPerfectDraftsAreKept) {
  const test::HashLm lm{7, 5, 6, 9};
  DecodingParams greedy;
  greedy.sampling.temperature = 0;
  greedy.max_tokens = 11;
  greedy.method = FindMethod("speculative_beam_search");
  const test::DecodeRun want =
      test::RunDecode(MakeBeamDecoder(greedy).value(), greedy, lm, test::DraftQuality::kNone, 0, 0);
  for (const MethodRow* row : SectionFourMethods()) {
    SCOPED_TRACE(std::string(row->name));
    DecodingParams params = greedy;
    params.method = row;
    const test::DecodeRun run = test::RunDecode(MakeBeamDecoder(params).value(), params, lm,
                                                test::DraftQuality::kIdentical, 2, 4);
    EXPECT_EQ(run.result[0].tokens, want.result[0].tokens);
    EXPECT_EQ(run.layers_per_round[0], 5);
  }
  for (const char* method :
       {"rejection", "block_verification", "recursive_rejection", "k_seq", "spectr"}) {
    SCOPED_TRACE(method);
    DecodingParams params = greedy;
    params.sampling.temperature = 1;
    params.method = FindMethod(method);
    const test::DecodeRun run = test::RunDecode(MakeBeamDecoder(params).value(), params, lm,
                                                test::DraftQuality::kIdentical, 2, 4);
    EXPECT_EQ(run.layers_per_round[0], 5);
  }
}

}  // namespace
}  // namespace coppice::decoding
