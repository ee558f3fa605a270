// Invariants of tests/decoding/README.md 6 for block verification (4.7). All choices of drafter and
// decoder are enumerated over two drafted tokens, and the distributions of the draws are checked.
// For its distribution on ordinary rows see tree_distribution_test.cc, for its rates
// acceptance_rate_test.cc.
#include "decoding/tree/block_verification.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lab/exact/tree_distribution.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/checked_choices.h"
#include "tests/testing/row_forms.h"

namespace coppice::decoding {
namespace {

constexpr double kRounding = 1e-13;  // a coin of probability 1 - 1e-16 can fail
using Masses = std::vector<double>;

// The first row differs from those below it. The masses are not normalised.
test::LogProbsOf Rows(const Masses& root, const Masses& below) {
  const auto logs = [](const Masses& masses) {
    std::vector<double> row;
    for (double mass : masses) row.push_back(sampling::Log(mass));
    return row;
  };
  return [first = logs(root), others = logs(below)](uint64_t hash) {
    return hash == sampling::kRootHash ? first : others;
  };
}

test::TreeSetting Setting(const test::LogProbsOf& target, const test::LogProbsOf& draft) {
  test::TreeSetting setting;
  setting.params.draft_tree = "chain";
  setting.params.max_tokens = 3;
  setting.rule = nullptr;  // block verification
  setting.target = target;
  setting.draft = draft;
  return setting;
}

using Visit = std::function<void(const test::TreeRun&, const test::CheckedChoices&)>;
void ExpectExact(const test::TreeSetting& setting, const Visit& visit = nullptr,
                 double tolerance = 1e-12) {
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    test::CheckedChoices checked(choices, tolerance);
    const test::TreeRun run = test::RunTree(setting, &checked);
    distribution[{run.tokens.begin(), run.tokens.end()}] += choices->probability();
    if (visit && choices->probability() > kRounding) visit(run, checked);
  });
  EXPECT_LE(test::LargestDifference(distribution, test::MultinomialDistribution(setting)),
            tolerance);
}

TEST(BlockVerification, EqualRowsKeepTheBlockWithoutAResidualDraw) {
  const test::LogProbsOf rows = Rows({0.5, 0.3, 0.2}, {0.1, 0.2, 0.7});
  ExpectExact(Setting(rows, rows),
              [](const test::TreeRun& run, const test::CheckedChoices& checked) {
                EXPECT_EQ(run.layers, (std::vector<int>{3}));
                EXPECT_TRUE(checked.residuals().empty());
              });
}

TEST(BlockVerification, DisjointSupportsKeepNothingAndLeaveTheTarget) {
  const Masses p = {0.7, 0.3, 0, 0};
  const Masses q = {0, 0, 0.6, 0.4};
  ExpectExact(Setting(Rows(p, p), Rows(q, q)), [&](const test::TreeRun& run,
                                                   const test::CheckedChoices& checked) {
    EXPECT_EQ(run.layers, (std::vector<int>{1, 1, 1}));
    for (const test::CheckedChoices::EntryDistribution& residual : checked.residuals()) {
      EXPECT_EQ(residual.size(), 2u);
      for (const auto& [entry, mass] : residual) EXPECT_NEAR(mass, p[entry.second], 1e-15);
    }
    EXPECT_EQ(checked.residuals().size(), 2u);  // the third token is not drafted
  });
}

TEST(BlockVerification, ExtremeRowsKeepTheDistribution) {
  const std::vector<Masses> rows = {
      {0.5, 0.3, 0.2}, {0, 1, 0}, {1, 0, 0}, {0.6, 0, 0.4}, {0, 0.5, 0.5}};
  for (const Masses& p : rows) {
    for (const Masses& q : rows) {
      for (const Masses& below : {rows[0], rows[1], rows[3]}) {
        ExpectExact(Setting(Rows(p, rows[0]), Rows(q, below)));
        ExpectExact(Setting(Rows(p, rows[4]), Rows(q, below)));
      }
    }
  }
}

TEST(BlockVerification, RoundedRowsKeepTheDistribution) {
  const Masses plain = {0.5, 0.3, 0.2}, other = {0.2, 0.5, 0.3};
  const Masses f32 = {0.5 - 1e-7, 0.3, 0.2};  // sums to 1 - 1e-7
  ExpectExact(Setting(Rows(f32, other), Rows(plain, f32)), nullptr, 1e-6);
  ExpectExact(Setting(Rows(plain, f32), Rows(f32, other)), nullptr, 1e-6);
  const double near = 1.2e-16;  // makes residuals of almost no mass
  const Masses up = {0.5 + near, 0.3, 0.2 - near}, down = {0.5 - near, 0.3, 0.2 + near};
  ExpectExact(Setting(Rows(plain, up), Rows(down, plain)));
  ExpectExact(Setting(Rows(up, down), Rows(plain, plain)));
  ExpectExact(Setting(Rows({1 - 1e-15, 1e-15}, {0.5, 0.5}), Rows({1e-15, 1 - 1e-15}, {0.5, 0.5})));
}

// 4.7 gives the same probabilities and residual from whole rows as from the same rows as lists.
TEST(BlockVerification, WholeAndListedRowsGiveTheSameChances) {
  for (int hole : {0, 3}) {
    const test::RowForms rows(/*beams=*/3, /*vocab=*/60, /*support=*/12, /*seed=*/5, hole);
    const auto distributions = [](const LayerDistribution& layer) {
      std::vector<LayerDistribution> single(3);
      for (int i = 0; i < 3; ++i) {
        single[i].rows = {layer.rows[i]};
        single[i].rows[0].log_weight = 0;
      }
      return single;
    };
    const std::vector<LayerDistribution> whole = distributions(rows.p_whole),
                                         listed = distributions(rows.p_listed);
    const std::vector<const sampling::Distribution*> proposals = {&rows.proposals[0],
                                                                  &rows.proposals[1]};
    SeededChoices choices(3);
    for (TokenId first : rows.proposals[0].tokens) {
      for (TokenId second : rows.proposals[1].tokens) {
        const std::vector<TokenId> draft = {first, second};
        const BlockChances a = FindBlockChances(whole, proposals, draft);
        const BlockChances b = FindBlockChances(listed, proposals, draft);
        for (int i = 0; i < 3; ++i) ASSERT_NEAR(a.kept[i], b.kept[i], 1e-12);
        for (int i = 0; i < 2; ++i) ASSERT_NEAR(a.passes[i], b.passes[i], 1e-12);
        const LayerDistribution x = BlockResidual(whole[1], *proposals[1], a.kept[1]);
        const LayerDistribution y = BlockResidual(listed[1], *proposals[1], b.kept[1]);
        for (uint32_t slot = 0; slot < 10; ++slot) {
          ASSERT_EQ(choices.Choose(sampling::Domain::kResidual, slot, x).entry,
                    choices.Choose(sampling::Domain::kResidual, slot, y).entry);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
