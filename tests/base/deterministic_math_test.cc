#include "base/deterministic_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/rng.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kValues = 1000000;

// Distance of `got` from the exact value, in units in the last place of the result.
double UlpError(double got, long double truth) {
  const double rounded = static_cast<double>(truth);
  const double ulp = std::nextafter(std::abs(rounded), kInfinity) - std::abs(rounded);
  return static_cast<double>(std::abs(static_cast<long double>(got) - truth) / ulp);
}

double Draw(int i, double low, double high) {
  return low + (high - low) * Uniform(5, Domain::kDirect, kRootHash, 0, static_cast<uint32_t>(i));
}

// A positive normal or subnormal double with random bits.
double AnyPositive(int i) {
  const double u = Uniform(6, Domain::kDirect, kRootHash, 0, static_cast<uint32_t>(i));
  return std::bit_cast<double>(1 + static_cast<uint64_t>(u * 0x7FEFFFFFFFFFFFFEull));
}

TEST(DeterministicMathTest, LogIsWithinAnUlp) {
  double worst = 0, worst_near_one = 0;
  for (int i = 0; i < kValues; ++i) {
    const double x = AnyPositive(i);
    worst = std::max(worst, UlpError(Log(x), std::log(static_cast<long double>(x))));
    const double y = Draw(i, 0.5, 2);
    worst_near_one =
        std::max(worst_near_one, UlpError(Log(y), std::log(static_cast<long double>(y))));
  }
  EXPECT_LT(worst, 1);
  EXPECT_LT(worst_near_one, 1);
}

TEST(DeterministicMathTest, ExpIsWithinAnUlp) {
  double worst = 0;
  for (int i = 0; i < kValues; ++i) {
    const double x = i % 2 == 0 ? Draw(i, -708, 709.7) : Draw(i, -2, 2);
    worst = std::max(worst, UlpError(Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1);
}

TEST(DeterministicMathTest, SubnormalResultsOfExpAreWithinAnUlp) {
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = Draw(i, -745, -708);
    worst = std::max(worst, UlpError(Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.1);
}

TEST(DeterministicMathTest, Log1pIsWithinTwoUlp) {
  double worst = 0;
  for (int i = 0; i < kValues; ++i) {
    double x = Draw(i, -1, 1);
    if (i % 3 == 0) x = std::ldexp(x, -(i % 60));
    if (i % 3 == 1) x = AnyPositive(i);
    worst = std::max(worst, UlpError(Log1p(x), std::log1p(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2);
}

TEST(DeterministicMathTest, EdgesAreLibms) {
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_TRUE(std::isnan(Log(std::nan(""))));
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(710), kInfinity);
  EXPECT_EQ(Exp(-746), 0);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
  EXPECT_EQ(Log1p(0), 0);
  EXPECT_EQ(Log1p(-1), -kInfinity);
  EXPECT_EQ(Log1p(kInfinity), kInfinity);
  EXPECT_EQ(Log1p(1e-300), 1e-300);
  EXPECT_TRUE(std::isnan(Log1p(std::nan(""))));
  EXPECT_EQ(Log(std::numeric_limits<double>::denorm_min()),
            std::log(std::numeric_limits<double>::denorm_min()));
  EXPECT_EQ(Exp(709.782712893384), std::exp(709.782712893384));
}

TEST(DeterministicMathTest, LogAndExpAreMonotone) {
  double previous_log = -kInfinity, previous_exp = 0;
  for (int i = 1; i < 200000; ++i) {
    const double x =
        std::bit_cast<double>(std::bit_cast<uint64_t>(1.4142135623730951) + (i - 100000));
    EXPECT_GE(Log(x), previous_log);
    previous_log = Log(x);
    const double y = 0.34657359027997264 + (i - 100000) * 1e-16;
    EXPECT_GE(Exp(y), previous_exp);
    previous_exp = Exp(y);
  }
}

}  // namespace
}  // namespace coppice
