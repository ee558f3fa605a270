// tests/decoding/README.md 4 for 5.1: how many of the seeded drafts of a layer DSBD accepts,
// compared with P(m, k) (erratum E2), under both rules of 5.2. P(m, k) is computed draft by draft
// from dense rows. G-tests at 1e-6; rates within five standard errors. Seeds are fixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "decoding/layer/dsbd_layer.h"
#include "decoding/layer/dsbd_width.h"
#include "tests/testing/g_test.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {
namespace {

using namespace test::joint_layer;  // NOLINT: the whole file is about its layers

constexpr double kErrors = 5;
constexpr int kDraws = 100000;
constexpr int kVocab = 4;  // the largest of the configurations
constexpr int kDrafts = 6;
using Flat = std::vector<double>;

// alpha_1..alpha_m of 4.2; q may sum to less than 1.
Flat AcceptanceOfDrafts(Flat a, const Flat& q, int m) {
  Flat alpha;
  for (int j = 0; j < m; ++j) {
    double overlap = 0, excess = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      overlap += std::min(a[i], q[i]);
      excess += std::max(0.0, a[i] - q[i]);
    }
    alpha.push_back(overlap);
    for (size_t i = 0; i < a.size() && excess > 1e-14; ++i)
      a[i] = std::max(0.0, a[i] - q[i]) / excess;
  }
  return alpha;
}

// P(m, k), draft by draft. The state is how many were accepted and how many were rejected since the
// last acceptance.
Flat CountsFor(const Flat& alpha) {
  const int m = static_cast<int>(alpha.size());
  std::vector<Flat> chance(m + 1, Flat(m + 1, 0.0));  // [accepted][rejected since]
  chance[0][0] = 1;
  for (int draft = 0; draft < m; ++draft) {
    std::vector<Flat> next(m + 1, Flat(m + 1, 0.0));
    for (int k = 0; k <= draft; ++k) {
      for (int j = 0; j <= draft - k; ++j) {
        next[k + 1][0] += chance[k][j] * alpha[j];
        next[k][j + 1] += chance[k][j] * (1 - alpha[j]);
      }
    }
    chance = next;
  }
  Flat distribution;
  for (const Flat& row : chance) {
    distribution.push_back(0);
    for (double mass : row) distribution.back() += mass;
  }
  return distribution;
}

// Outcome: number of drafts whose parent is current (all drafts under rule E), number accepted.
using Counts = std::pair<int, int>;

struct CountedLayer {
  explicit CountedLayer(const Config& config)
      : layer(MakeLayer(config.target, config.draft, config.draft_target)) {
    Bind(&layer);
    arranged = ArrangedProposal(layer);
    p = test::FlatMass(layer.p, kVocab);
    q = test::FlatMass(arranged, kVocab);
    q.resize(p.size());  // only the current beams
    for (double mass : q) current += mass;
  }
  CountedLayer(const CountedLayer&) = delete;

  LayerResult Verify(RemovedParents rule, int width, uint64_t seed, int* survivors) const {
    SeededChoices choices(seed);
    choices.BeginRound(0);
    const std::vector<Entry> drafts = DrawDrafts(layer, kDrafts, &choices);
    *survivors = static_cast<int>(std::count_if(
        drafts.begin(), drafts.end(), [&](Entry d) { return d.beam < layer.p.rows.size(); }));
    return VerifyDsbdLayer({&layer.p, &arranged, drafts, width}, rule, WidthRule(), &choices);
  }

  // P(m, .) for m drafts under a rule.
  Flat CountDistribution(RemovedParents rule, int m) const {
    Flat proposal = q;
    if (rule == RemovedParents::kRenormalise) {
      for (double& mass : proposal) mass /= current;
    }
    return CountsFor(AcceptanceOfDrafts(p, proposal, m));
  }
  std::map<Counts, double> DistributionOfCounts(RemovedParents rule) const {
    std::map<Counts, double> distribution;
    const bool renormalise = rule == RemovedParents::kRenormalise;
    for (int m = renormalise ? 0 : kDrafts; m <= kDrafts; ++m) {
      const double chance =  // of m survivors
          renormalise
              ? std::tgamma(kDrafts + 1) / std::tgamma(m + 1) / std::tgamma(kDrafts - m + 1) *
                    std::pow(current, m) * std::pow(1 - current, kDrafts - m)
              : 1;
      const Flat count = CountDistribution(rule, m);
      for (int k = 0; k <= m; ++k) {
        if (chance * count[k] > 0) distribution[{m, k}] = chance * count[k];
      }
    }
    return distribution;
  }

  Layer layer;
  LayerDistribution arranged;
  Flat p, q;
  double current = 0;
};

std::map<Counts, int> CountAccepted(const CountedLayer& layer, RemovedParents rule, int draws) {
  std::map<Counts, int> counts;
  for (int i = 0; i < draws; ++i) {
    int survivors = 0;
    const LayerResult result = layer.Verify(rule, kDrafts + 1, 1 + i, &survivors);  // never full
    const int accepted =
        static_cast<int>(std::count_if(result.outputs.begin(), result.outputs.end(),
                                       [](const RuleOutput& output) { return output.draft >= 0; }));
    ++counts[{rule == RemovedParents::kRenormalise ? survivors : kDrafts, accepted}];
  }
  return counts;
}

const std::vector<const Config*>& RateConfigs() {
  static const auto* configs =
      new std::vector<const Config*>{&Configs()[2], &Configs()[7], &HardCase()};
  return *configs;
}

TEST(DsbdRate, AcceptedDraftsFollowTheClosedDistribution) {
  const int draws = test::Samples(kDraws);
  for (const Config* config : RateConfigs()) {
    const CountedLayer layer(*config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      SCOPED_TRACE(testing::Message() << config->name << " rule " << static_cast<int>(rule));
      EXPECT_TRUE(
          test::CountsFit(layer.DistributionOfCounts(rule), CountAccepted(layer, rule, draws)));
    }
  }
}

// The two rules count differently if a parent was removed, and the test detects it.
TEST(DsbdRate, RulesAreToldApart) {
  const CountedLayer layer(HardCase());
  std::map<Counts, double> distribution;
  const Flat renormalised = layer.CountDistribution(RemovedParents::kRenormalise, kDrafts);
  for (int k = 0; k <= kDrafts; ++k) distribution[{kDrafts, k}] = renormalised[k];
  EXPECT_FALSE(
      test::CountsFit(distribution, CountAccepted(layer, RemovedParents::kReject, kDraws)));
}

// Erratum E2: without P(m, 0) = prod (1 - alpha_j), the recursion does not give a distribution.
TEST(DsbdRate, ProductionDistributionIsTheOneWorkedOutForwards) {
  for (const Config* config : RateConfigs()) {
    const CountedLayer layer(*config);
    Residual a(layer.layer.p, layer.arranged);
    const Flat count = AcceptedCountDistribution(AcceptanceByDraft(&a, kDrafts));
    const Flat want = layer.CountDistribution(RemovedParents::kReject, kDrafts);
    for (int k = 0; k <= kDrafts; ++k) EXPECT_NEAR(count[k], want[k], 1e-14) << config->name;
  }
}

TEST(DsbdRate, LayersAreFullAsOftenAsTheTailSays) {
  const int draws = test::Samples(kDraws);
  for (const Config* config : {&EasyCase(), &HardCase()}) {
    const CountedLayer layer(*config);
    const Flat distribution = layer.CountDistribution(RemovedParents::kReject, kDrafts);
    for (int width : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << config->name << " W " << width);
      double want = 0;
      for (int k = kDrafts; k >= width; --k) want += distribution[k];
      int full = 0, survivors = 0;
      for (int i = 0; i < draws; ++i)
        full += layer.Verify(RemovedParents::kReject, width, 1 + i, &survivors).full;
      EXPECT_NEAR(full / static_cast<double>(draws), want,
                  kErrors * std::sqrt(want * (1 - want) / draws));
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
