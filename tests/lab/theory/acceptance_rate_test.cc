// tests/decoding/README.md 4: how often the production verifiers accept the drafts of the
// production drafters, with seeded choices, compared with the closed forms of 4.1-4.5, 4.8 and 5.1.
// Seeds are fixed. Rates agree within five standard errors (false alarm 6e-7 each); G-tests at
// 1e-6.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "decoding/tree/child_sampling.h"
#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "decoding/tree/luce_ot.h"
#include "decoding/tree/node_rule.h"
#include "lab/exact/tree_distribution.h"
#include "lab/theory/acceptance.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/g_test.h"

namespace coppice::decoding {
namespace {

constexpr double kErrors = 5;
constexpr int kDraws = 100000;

using Row = std::vector<double>;  // dense masses

double Overlapping(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t v = 0; v < a.size(); ++v) sum += std::min(a[v], b[v]);
  return sum;
}

Row Normalised(Row row) {
  double sum = 0;
  for (double mass : row) sum += mass;
  for (double& mass : row) mass /= sum;
  return row;
}

Row ResidualOf(const Row& a, const Row& b) {
  Row rest;
  for (size_t v = 0; v < a.size(); ++v) rest.push_back(std::max(0.0, a[v] - b[v]));
  return Normalised(rest);
}

// 4.2 without replacement has no closed form. This sums its definition over all lists of drafts.
double AcceptanceWithoutReplacement(const Row& a, const Row& b, int n) {
  double accepted = 0;
  for (size_t d = 0; d < b.size(); ++d) {
    if (b[d] == 0) continue;
    const double here = std::min(1.0, a[d] / b[d]);
    double later = 0;
    if (n > 1 && here < 1) {
      Row left = b;
      left[d] = 0;
      if (Overlapping(left, left) > 0)
        later = AcceptanceWithoutReplacement(ResidualOf(a, b), Normalised(left), n - 1);
    }
    accepted += b[d] * (here + (1 - here) * later);
  }
  return accepted;
}

// The n most likely tokens of q are the drafts, and t ~ p is one of them or not.
double AcceptanceOfMostLikely(const Row& p, const Row& q, int n) {
  double sum = 0;
  for (TokenId token : MostLikelyTokens(test::DenseDistribution([&] {
                                          Row log_q;
                                          for (double mass : q)
                                            log_q.push_back(sampling::Log(mass));
                                          return log_q;
                                        }()),
                                        n)) {
    sum += p[token];
  }
  return sum;
}

struct RowPair {
  const char* name;
  Row p, q;
};

std::vector<RowPair> RowPairs() {
  return {
      {"flat", Normalised({8, 7, 6, 5, 4, 3, 2, 1}), Normalised({3, 6, 2, 7, 5, 1, 4, 8})},
      {"peaked", Normalised({60, 1, 20, 2, 9, 4, 2, 2}), Normalised({30, 40, 10, 5, 5, 4, 3, 3})},
      {"unlike supports", Normalised({5, 0, 3, 2, 0, 6, 1, 1}),
       Normalised({0, 4, 3, 5, 2, 1, 0, 0})}};
}

sampling::Distribution Sparse(const Row& masses) {
  sampling::Distribution row;
  for (size_t v = 0; v < masses.size(); ++v) {
    if (masses[v] == 0) continue;
    row.tokens.push_back(static_cast<TokenId>(v));
    row.log_probs.push_back(sampling::Log(masses[v]));
  }
  return row;
}

struct Case {
  const char* name;
  NodeRule rule;
  ChildSampling distribution;
  int drafts;
  double (*closed_form)(const Row& p, const Row& q, int n);
  bool by_coin = false;  // the closed form counts drafts accepted by a coin, not residual hits
};

const std::vector<Case>& Cases() {
  const auto overlap = [](const Row& p, const Row& q, int) { return lab::Overlap(p, q); };
  const auto rrs = [](const Row& p, const Row& q, int n) { return lab::AcceptanceRrsIid(p, q, n); };
  const auto k_seq = [](const Row& p, const Row& q, int n) {
    return AcceptanceKSeq(p, q, n).acceptance;
  };
  const auto greedy = [](const Row& p, const Row& q, int n) {
    return lab::AcceptanceGreedy(p, q, n);
  };
  const auto luce = [](const Row& p, const Row& q, int n) {
    return lab::AcceptanceLuceOt(p, q, n);
  };
  static const auto* cases = new std::vector<Case>{
      {"rejection", VerifyRrsIid, ChildSampling::kIid, 1, overlap},
      {"RRS iid", VerifyRrsIid, ChildSampling::kIid, 2, rrs},
      {"RRS iid", VerifyRrsIid, ChildSampling::kIid, 4, rrs},
      {"RRS WOR", VerifyRrsWithoutReplacement, ChildSampling::kWithoutReplacement, 2,
       AcceptanceWithoutReplacement},
      {"RRS WOR", VerifyRrsWithoutReplacement, ChildSampling::kWithoutReplacement, 3,
       AcceptanceWithoutReplacement},
      {"sample and check", SampleAndCheck, ChildSampling::kMostLikely, 3, AcceptanceOfMostLikely},
      {"K-SEQ", VerifyKSeq, ChildSampling::kIid, 2, k_seq},
      {"K-SEQ", VerifyKSeq, ChildSampling::kIid, 4, k_seq},
      {"greedy", VerifyGreedy, ChildSampling::kGreedy, 2, greedy},
      {"greedy", VerifyGreedy, ChildSampling::kGreedy, 4, greedy},
      {"SpecHub", VerifyGreedy, ChildSampling::kSpecHub, 2, greedy},
      {"Luce-OT", VerifyLuceOt, ChildSampling::kIid, 2, luce, /*by_coin=*/true},
  };
  return *cases;
}

struct Measured {
  double acceptance = 0;
  std::map<TokenId, int> tokens;
};

// Drafts and verifies one node after the prompt, once with each seed.
Measured Measure(const Case& rule, const RowPair& rows, int draws) {
  const sampling::Distribution p_row = Sparse(rows.p), q = Sparse(rows.q);
  LayerDistribution p;
  p.rows.resize(1);
  p.rows[0].hash = sampling::kRootHash;
  p.rows[0].sparse = &p_row;
  Measured measured;
  int accepted = 0;
  for (int i = 0; i < draws; ++i) {
    SeededChoices choices(1 + i);
    choices.BeginRound(0);
    const std::vector<TokenId> drafts =
        DrawChildren(rule.distribution, q, sampling::kRootHash, rule.drafts, &choices);
    const NodeVerdict verdict = rule.rule({&p, &q, drafts}, &choices);
    accepted += rule.by_coin ? verdict.residual_draws == 0 : verdict.draft >= 0;
    ++measured.tokens[verdict.token];
  }
  measured.acceptance = accepted / static_cast<double>(draws);
  return measured;
}

double StandardError(double rate, int draws) { return std::sqrt(rate * (1 - rate) / draws); }

TEST(AcceptanceRate, NodeRulesAcceptAsOftenAsTheirClosedForms) {
  const int draws = test::Samples(kDraws);
  for (const RowPair& rows : {RowPairs()[0], RowPairs()[2]}) {
    std::map<TokenId, double> distribution;
    for (size_t v = 0; v < rows.p.size(); ++v) {
      if (rows.p[v] > 0) distribution[static_cast<TokenId>(v)] = rows.p[v];
    }
    for (const Case& rule : Cases()) {
      SCOPED_TRACE(testing::Message() << rows.name << " " << rule.name << " n " << rule.drafts);
      const double want = rule.closed_form(rows.p, rows.q, rule.drafts);
      const Measured measured = Measure(rule, rows, draws);
      EXPECT_NEAR(measured.acceptance, want, kErrors * StandardError(want, draws) + 1e-9);
      EXPECT_TRUE(test::CountsFit(distribution, measured.tokens));
    }
  }
}

// The comparison above must detect one draft more or less, and drafts of another distribution.
TEST(AcceptanceRate, OtherRatesAreTellable) {
  const RowPair rows = RowPairs()[0];
  for (const Case& rule : Cases()) {
    if (rule.drafts == 1) continue;
    SCOPED_TRACE(rule.name);
    const double want = rule.closed_form(rows.p, rows.q, rule.drafts);
    const double fewer = rule.closed_form(rows.p, rows.q, rule.drafts - 1);
    EXPECT_GT(std::abs(want - fewer), 10 * StandardError(want, kDraws));
  }
  const double iid = lab::AcceptanceRrsIid(rows.p, rows.q, 3);
  EXPECT_GT(std::abs(AcceptanceWithoutReplacement(rows.p, rows.q, 3) - iid),
            10 * StandardError(iid, kDraws));
}

// A pair of models without context: the rows are the same at every node.
test::TreeSetting ContextFree(NodeRule rule, const RowPair& rows, int depth) {
  test::TreeSetting setting;
  setting.params.draft_tree = "chain";
  setting.params.max_tokens = depth + 1;
  setting.rule = rule;
  setting.draft_depth = depth;
  const auto model = [](const Row& masses) {
    Row log_probs;
    for (double mass : masses) log_probs.push_back(sampling::Log(mass));
    return [log_probs](uint64_t) { return log_probs; };
  };
  setting.target = model(rows.p);
  setting.draft = model(rows.q);
  return setting;
}

int TokensOfFirstRound(const test::TreeSetting& setting, uint64_t seed) {
  SeededChoices choices(seed);
  return test::RunTree(setting, &choices, /*rounds=*/1).layers[0];
}

// 4.1: E[tokens] = (1 - alpha^(gamma + 1)) / (1 - alpha), and the whole distribution of the length.
TEST(AcceptanceRate, TokensOfAPathAreGeometric) {
  const int gamma = 4, draws = test::Samples(kDraws);
  const RowPair rows = RowPairs()[1];
  const double alpha = lab::Overlap(rows.p, rows.q);
  std::map<int, double> distribution;
  double mean = 0, square = 0;
  for (int tokens = 1; tokens <= gamma + 1; ++tokens) {
    distribution[tokens] = std::pow(alpha, tokens - 1) * (tokens <= gamma ? 1 - alpha : 1);
    mean += tokens * distribution[tokens];
    square += tokens * tokens * distribution[tokens];
  }
  EXPECT_NEAR(mean, (1 - std::pow(alpha, gamma + 1)) / (1 - alpha), 1e-12);
  std::map<int, int> counts;
  double sum = 0;
  const test::TreeSetting setting = ContextFree(VerifyRrsIid, rows, gamma);
  for (int i = 0; i < draws; ++i) {
    const int tokens = TokensOfFirstRound(setting, 1 + i);
    ++counts[tokens];
    sum += tokens;
  }
  EXPECT_NEAR(sum / draws, mean, kErrors * std::sqrt((square - mean * mean) / draws));
  EXPECT_TRUE(test::CountsFit(distribution, counts));
}

// 4.7 with seeded choices keeps as many tokens as its enumerated distribution says, which is more
// than 4.1.
TEST(AcceptanceRate, TokensOfABlockFollowTheEnumeratedDistribution) {
  const RowPair rows = {"two tokens", {0.6, 0.4}, {0.3, 0.7}};
  const int gamma = 3, draws = test::Samples(kDraws);
  const test::TreeSetting block = ContextFree(nullptr, rows, gamma);
  const auto as_lengths = [](const test::ExactDistribution& distribution) {
    std::map<int, double> lengths;
    for (const auto& [length, mass] : distribution) lengths[static_cast<int>(length[0])] = mass;
    return lengths;
  };
  std::map<int, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[TokensOfFirstRound(block, 1 + i)];
  EXPECT_TRUE(test::CountsFit(as_lengths(test::RoundLengthDistribution(block)), counts));
  EXPECT_FALSE(test::CountsFit(
      as_lengths(test::RoundLengthDistribution(ContextFree(VerifyRrsIid, rows, gamma))), counts));
}

}  // namespace
}  // namespace coppice::decoding
