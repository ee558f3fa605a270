#include "sampling/deterministic_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sampling/rng.h"

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
  return low + (high - low) * sampling::Uniform(5, sampling::Domain::kDirect, sampling::kRootHash,
                                                0, static_cast<uint32_t>(i));
}

// A positive normal or subnormal double with random bits.
double AnyPositive(int i) {
  const double u = sampling::Uniform(6, sampling::Domain::kDirect, sampling::kRootHash, 0,
                                     static_cast<uint32_t>(i));
  return std::bit_cast<double>(1 + static_cast<uint64_t>(u * 0x7FEFFFFFFFFFFFFEull));
}

TEST(DeterministicMathTest, LogIsWithinAnUlp) {
  double worst = 0, worst_near_one = 0;
  for (int i = 0; i < kValues; ++i) {
    const double x = AnyPositive(i);
    worst = std::max(worst, UlpError(sampling::Log(x), std::log(static_cast<long double>(x))));
    const double y = Draw(i, 0.5, 2);
    worst_near_one =
        std::max(worst_near_one, UlpError(sampling::Log(y), std::log(static_cast<long double>(y))));
  }
  EXPECT_LT(worst, 1);
  EXPECT_LT(worst_near_one, 1);
}

TEST(DeterministicMathTest, ExpIsWithinAnUlp) {
  double worst = 0;
  for (int i = 0; i < kValues; ++i) {
    const double x = i % 2 == 0 ? Draw(i, -708, 709.7) : Draw(i, -2, 2);
    worst = std::max(worst, UlpError(sampling::Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1);
}

TEST(DeterministicMathTest, SubnormalResultsOfExpAreWithinAnUlp) {
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = Draw(i, -745, -708);
    worst = std::max(worst, UlpError(sampling::Exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.1);
}

TEST(DeterministicMathTest, Log1pIsWithinTwoUlp) {
  double worst = 0;
  for (int i = 0; i < kValues; ++i) {
    double x = Draw(i, -1, 1);
    if (i % 3 == 0) x = std::ldexp(x, -(i % 60));
    if (i % 3 == 1) x = AnyPositive(i);
    worst = std::max(worst, UlpError(sampling::Log1p(x), std::log1p(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2);
}

TEST(DeterministicMathTest, EdgesAreLibms) {
  EXPECT_EQ(sampling::Log(1), 0);
  EXPECT_EQ(sampling::Log(0), -kInfinity);
  EXPECT_EQ(sampling::Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(sampling::Log(-1)));
  EXPECT_TRUE(std::isnan(sampling::Log(std::nan(""))));
  EXPECT_EQ(sampling::Exp(0), 1);
  EXPECT_EQ(sampling::Exp(-kInfinity), 0);
  EXPECT_EQ(sampling::Exp(kInfinity), kInfinity);
  EXPECT_EQ(sampling::Exp(710), kInfinity);
  EXPECT_EQ(sampling::Exp(-746), 0);
  EXPECT_TRUE(std::isnan(sampling::Exp(std::nan(""))));
  EXPECT_EQ(sampling::Log1p(0), 0);
  EXPECT_EQ(sampling::Log1p(-1), -kInfinity);
  EXPECT_EQ(sampling::Log1p(kInfinity), kInfinity);
  EXPECT_EQ(sampling::Log1p(1e-300), 1e-300);
  EXPECT_TRUE(std::isnan(sampling::Log1p(std::nan(""))));
  EXPECT_EQ(sampling::Log(std::numeric_limits<double>::denorm_min()),
            std::log(std::numeric_limits<double>::denorm_min()));
  EXPECT_EQ(sampling::Exp(709.782712893384), std::exp(709.782712893384));
}

TEST(DeterministicMathTest, LogAndExpAreMonotone) {
  double previous_log = -kInfinity, previous_exp = 0;
  for (int i = 1; i < 200000; ++i) {
    const double x =
        std::bit_cast<double>(std::bit_cast<uint64_t>(1.4142135623730951) + (i - 100000));
    EXPECT_GE(sampling::Log(x), previous_log);
    previous_log = sampling::Log(x);
    const double y = 0.34657359027997264 + (i - 100000) * 1e-16;
    EXPECT_GE(sampling::Exp(y), previous_exp);
    previous_exp = sampling::Exp(y);
  }
}

}  // namespace
}  // namespace coppice
