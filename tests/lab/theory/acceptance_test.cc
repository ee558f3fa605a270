// Acceptance calculators (docs/algorithms.md 7) against brute force over subsets and closed
// forms.
#include "lab/theory/acceptance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "decoding/tree/k_seq.h"
#include "lab/theory/optimal_acceptance.h"

namespace coppice::decoding {
namespace {

using Row = std::vector<double>;

Row Normalised(Row row) {
  double sum = 0;
  for (double value : row) sum += value;
  for (double& value : row) value /= sum;
  return row;
}

Row RandomRow(int size, uint32_t seed, double power = 2) {
  std::mt19937 bits(seed);
  std::uniform_real_distribution<double> uniform(0.01, 1);
  Row row(size);
  for (double& value : row) value = std::pow(uniform(bits), power);
  return Normalised(std::move(row));
}

bool Inside(uint32_t set, int token) { return (set >> token) & 1; }

double Mass(const Row& row, uint32_t set) {
  double sum = 0;
  for (size_t v = 0; v < row.size(); ++v) sum += Inside(set, static_cast<int>(v)) ? row[v] : 0;
  return sum;
}

// Probability that n draws without replacement all lie in the set. `drawn` are already taken.
double WithoutReplacement(const Row& q, uint32_t set, int n, uint32_t drawn = 0) {
  const uint32_t all = (1u << q.size()) - 1;
  if (n == 0 || Mass(q, all & ~drawn) == 0) return 1;
  double sum = 0;
  for (size_t v = 0; v < q.size(); ++v) {
    const uint32_t token = 1u << v;
    if (!(set & token) || (drawn & token) || q[v] == 0) continue;
    sum += q[v] / Mass(q, all & ~drawn) * WithoutReplacement(q, set, n - 1, drawn | token);
  }
  return sum;
}

double Greedy(const Row& q, uint32_t set, int n) {
  Row rest = q;
  for (int i = 1; i < n; ++i) {
    const auto top = std::max_element(rest.begin(), rest.end());
    if (!Inside(set, static_cast<int>(top - rest.begin()))) return 0;
    *top = 0;
  }
  return Mass(Normalised(rest), set);
}

// 1 + min over every set H of P(H) - Q(H).
template <typename SetDistribution>
double BruteForce(const Row& p, const SetDistribution& distribution) {
  double least = 0;
  for (uint32_t set = 0; set < (1u << p.size()); ++set)
    least = std::min(least, Mass(p, set) - distribution(set));
  return 1 + least;
}

TEST(OptimalAcceptanceTest, IsTheMinimumOverAllSets) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const int size = 3 + seed % 4;
    const Row p = RandomRow(size, 2 * seed), q = RandomRow(size, 2 * seed + 1, 1 + seed % 5);
    for (int n = 1; n <= 4; ++n) {
      const auto iid = [&](uint32_t set) { return std::pow(Mass(q, set), n); };
      const auto wor = [&](uint32_t set) { return WithoutReplacement(q, set, n); };
      EXPECT_NEAR(lab::OptimalAcceptanceIid(p, q, n).alpha, BruteForce(p, iid), 1e-13);
      EXPECT_NEAR(lab::OptimalAcceptanceWithoutReplacement(p, q, n).alpha, BruteForce(p, wor),
                  1e-13)
          << seed << " n " << n;
      if (n >= size) continue;
      const auto greedy = [&](uint32_t set) { return Greedy(q, set, n); };
      EXPECT_NEAR(lab::AcceptanceGreedy(p, q, n), BruteForce(p, greedy), 1e-13);
    }
  }
}

TEST(OptimalAcceptanceTest, WorkedExample) {
  const Row p = {0.5, 0.25, 0.25}, q = {0.25, 0.25, 0.5};
  EXPECT_DOUBLE_EQ(lab::Overlap(p, q), 0.75);
  EXPECT_DOUBLE_EQ(lab::AcceptanceRrsIid(p, q, 2), 13.0 / 16);
  EXPECT_NEAR(AcceptanceKSeq(p, q, 2).rho, 1.39039, 5e-6);
  EXPECT_NEAR(AcceptanceKSeq(p, q, 2).acceptance, 0.847597, 5e-7);
  EXPECT_DOUBLE_EQ(lab::OptimalAcceptanceIid(p, q, 2).alpha, 15.0 / 16);
  EXPECT_EQ(lab::OptimalAcceptanceIid(p, q, 2).prefix, 2);
  EXPECT_NEAR(lab::OptimalAcceptanceWithoutReplacement(p, q, 2).alpha, 1, 1e-14);
  EXPECT_DOUBLE_EQ(lab::AcceptanceGreedy(p, q, 2), 1);
}

// Erratum E20: the printed ratio of generating functions gives another distribution.
TEST(OptimalAcceptanceTest, PrefixDistributionIsThatOfSequentialDraws) {
  const Row q = {0.5, 0.3, 0.2};
  const Row distribution = lab::PrefixDistributionWithoutReplacement(q, {0, 1, 2}, 2);
  EXPECT_NEAR(distribution[2], 18.0 / 35, 1e-14);
  const double printed = q[0] * q[1] / (q[0] * q[1] + q[0] * q[2] + q[1] * q[2]);
  EXPECT_NEAR(printed, 15.0 / 31, 1e-14);
  EXPECT_GT(std::abs(distribution[2] - printed), 0.03);
}

// n = 1: q(H). n = 2: q(H) S1 - S2. Long rows, one of them with masses down to 1e-30.
TEST(OptimalAcceptanceTest, QuadratureAgreesWithClosedFormsOnLongRows) {
  for (double power : {1.0, 15.0}) {
    const Row q = RandomRow(3000, 5, power);
    std::vector<TokenId> order = lab::RatioOrder(RandomRow(3000, 6, power), q);
    const Row one = lab::PrefixDistributionWithoutReplacement(q, order, 1);
    const Row two = lab::PrefixDistributionWithoutReplacement(q, order, 2);
    double mass = 0, s1 = 0, s2 = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      const double value = q[order[k]];
      mass += value;
      s1 += value / (1 - value);
      s2 += value * value / (1 - value);
      ASSERT_NEAR(one[k + 1], mass, 1e-13) << k;
      ASSERT_NEAR(two[k + 1], mass * s1 - s2, 1e-13) << k;
    }
  }
}

TEST(OptimalAcceptanceTest, TokensThatTheDraftAllButMissesCountInFull) {
  const Row p = {0.5, 0.5}, q = {1, 1e-25};
  EXPECT_NEAR(lab::OptimalAcceptanceWithoutReplacement(p, q, 1).alpha, 0.5, 1e-13);
  EXPECT_EQ(lab::OptimalAcceptanceWithoutReplacement(p, q, 1).prefix, 1);
}

TEST(OptimalAcceptanceTest, Invariants) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Row p = RandomRow(40, 100 + seed), q = RandomRow(40, 200 + seed);
    for (int n = 1; n <= 5; ++n) {
      const double optimum = lab::OptimalAcceptanceIid(p, q, n).alpha;
      EXPECT_LE(lab::AcceptanceRrsIid(p, q, n), optimum + 1e-12);
      EXPECT_LE(AcceptanceKSeq(p, q, n).acceptance, optimum + 1e-12);
      EXPECT_LE(lab::AcceptanceLuceOt(p, q, n), optimum + 1e-12);
      EXPECT_GE(lab::AcceptanceLuceOt(p, q, n), optimum - 0.03);
      EXPECT_GE(AcceptanceKSeq(p, q, n).acceptance, (1 - 1 / 2.718281828) * optimum);
    }
    EXPECT_NEAR(lab::OptimalAcceptanceIid(p, p, 1).alpha, 1, 1e-12);
    EXPECT_NEAR(lab::OptimalAcceptanceWithoutReplacement(p, p, 3).alpha, 1, 1e-12);
    EXPECT_NEAR(lab::AcceptanceRrsIid(p, p, 3), 1, 1e-12);
  }
  // Disjoint supports; more drafts than tokens.
  EXPECT_EQ(lab::OptimalAcceptanceIid({1, 0}, {0, 1}, 3).alpha, 0);
  EXPECT_EQ(lab::OptimalAcceptanceWithoutReplacement({1, 0}, {0, 1}, 3).alpha, 0);
  EXPECT_NEAR(lab::OptimalAcceptanceWithoutReplacement({.5, .3, .2}, {.6, .4, 0}, 5).alpha, 0.8,
              1e-14);
  EXPECT_NEAR(lab::AcceptanceGreedy({.5, .3, .2}, {.6, .4, 0}, 5), 0.8, 1e-14);
}

}  // namespace
}  // namespace coppice::decoding
