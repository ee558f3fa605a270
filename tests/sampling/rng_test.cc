#include "sampling/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace coppice {
namespace {

// Known answers of Philox4x32-10 (Random123, kat_vectors).
TEST(RngTest, PhiloxKnownAnswers) {
  EXPECT_EQ(sampling::Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      sampling::Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      sampling::Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngTest, PathHashIsTheFoldOfItsTokens) {
  EXPECT_EQ(sampling::HashPath({}), sampling::kRootHash);
  EXPECT_EQ(sampling::HashPath({3, 5}),
            sampling::ExtendHash(sampling::ExtendHash(sampling::kRootHash, 3), 5));
  EXPECT_NE(sampling::HashPath({3, 5}), sampling::HashPath({5, 3}));
  EXPECT_NE(sampling::EpochHash(sampling::kRootHash, 0),
            sampling::EpochHash(sampling::kRootHash, 1));
}

// docs/algorithms.md 2, computed by another program: an even and an odd index share a counter and
// take two words of it each.
TEST(RngTest, UniformKnownAnswers) {
  const uint64_t seed = 0x0123456789abcdef, hash = sampling::HashPath({3, 5});
  EXPECT_EQ(sampling::Uniform(seed, sampling::Domain::kToken, hash, 2, 0), 0x1.be7af2d01d058p-4);
  EXPECT_EQ(sampling::Uniform(seed, sampling::Domain::kToken, hash, 2, 1), 0x1.80b87b92df437p-1);
  EXPECT_EQ(sampling::Uniform(seed, sampling::Domain::kToken, hash, 2, 6), 0x1.1ccec7bff796cp-3);
  EXPECT_EQ(sampling::Uniform(seed, sampling::Domain::kToken, hash, 2, 7), 0x1.cc43bf10a4a18p-4);
  EXPECT_EQ(sampling::Uniform(seed, sampling::Domain::kToken, hash, 2, 128255),
            0x1.185bc5a9ec9a4p-3);
}

TEST(RngTest, EveryPartOfTheKeyChangesTheDraw) {
  const double u = sampling::Uniform(1, sampling::Domain::kToken, 2, 3, 4);
  const std::set<double> draws = {
      u,
      sampling::Uniform(2, sampling::Domain::kToken, 2, 3, 4),
      sampling::Uniform(1 + (1ull << 32), sampling::Domain::kToken, 2, 3, 4),
      sampling::Uniform(1, sampling::Domain::kParent, 2, 3, 4),
      sampling::Uniform(1, sampling::Domain::kToken, 3, 3, 4),
      sampling::Uniform(1, sampling::Domain::kToken, 2 + (1ull << 32), 3, 4),
      sampling::Uniform(1, sampling::Domain::kToken, 2, 4, 4),
      sampling::Uniform(1, sampling::Domain::kToken, 2, 3, 5),
      sampling::Uniform(1, sampling::Domain::kToken, 2, 3, 6)};
  EXPECT_EQ(draws.size(), 9u);
  EXPECT_EQ(u, sampling::Uniform(1, sampling::Domain::kToken, 2, 3, 4));
}

// 400,000 draws: strictly inside (0, 1), uniform in 64 cells (chi-square, 63 degrees of freedom,
// 1e-6 level: 134), Gumbel mean at Euler's constant within 5 standard errors.
TEST(RngTest, DrawsAreUniformAndGumbel) {
  constexpr int kDraws = 400000;
  std::vector<int> cells(64, 0);
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = sampling::Uniform(11, sampling::Domain::kToken, sampling::kRootHash + i / 1000,
                                       0, i % 1000);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    ++cells[static_cast<int>(u * 64)];
    const double g =
        sampling::Gumbel(11, sampling::Domain::kToken, sampling::kRootHash + i / 1000, 0, i % 1000);
    ASSERT_TRUE(std::isfinite(g));
    ASSERT_NEAR(g, -std::log(-std::log(u)), 1e-13 * (1 + std::abs(g)));
    sum += g;
  }
  double chi2 = 0;
  for (int count : cells)
    chi2 += (count - kDraws / 64.0) * (count - kDraws / 64.0) / (kDraws / 64.0);
  EXPECT_LT(chi2, 134);
  EXPECT_NEAR(sum / kDraws, 0.5772156649, 5 * 1.2825 / std::sqrt(kDraws));
}

}  // namespace
}  // namespace coppice
