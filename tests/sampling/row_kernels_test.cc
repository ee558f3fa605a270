#include "sampling/row_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/gumbel_kernels.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

std::vector<double> RandomRow(uint64_t seed, size_t n, double spread) {
  std::vector<double> x(n);
  for (size_t v = 0; v < n; ++v) {
    x[v] = static_cast<float>(
        spread * sampling::Gumbel(seed, sampling::Domain::kDirect, 1, 0, static_cast<uint32_t>(v)));
  }
  return x;
}

std::vector<float> WeightsFor(size_t n) {
  return std::vector<float>((n + sampling::kRowPadding - 1) / sampling::kRowPadding *
                            sampling::kRowPadding);
}

// Computes every key, without pruning.
sampling::NoisyWinner PlainArgmax(const std::vector<double>& x, double log_sum,
                                  const sampling::NoiseKey& key) {
  double best = kNothing, second = kNothing;
  TokenId token = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    const double value = std::min(0.0, x[v] - log_sum) +
                         sampling::Gumbel(key.seed, key.domain, key.hash, key.slot, v);
    if (value > best) {
      second = best;
      best = value;
      token = static_cast<TokenId>(v);
    } else {
      second = std::max(second, value);
    }
  }
  return {token, std::min(best - second, sampling::kMarginCap)};
}

TEST(GumbelKernelsTest, NoiseOfBeamsIsThatOfTheGenerator) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 37; ++i) hashes.push_back(sampling::Finalize(i) * (i + 3));
  hashes.push_back(0);
  hashes.push_back(~uint64_t{0});
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::vector<double> noise(hashes.size());
    sampling::GumbelOfHashes({0x123456789ABCDEFull, sampling::Domain::kParent, 0, 511}, hashes,
                             noise.data());
    for (size_t i = 0; i < hashes.size(); ++i) {
      EXPECT_EQ(noise[i], sampling::Gumbel(0x123456789ABCDEFull, sampling::Domain::kParent,
                                           hashes[i], 511, 0))
          << hwy::TargetName(target) << " " << i;
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(RowKernelsTest, PrunedArgmaxIsThePlainArgmax) {
  int small_margins = 0;
  for (int i = 0; i < 1500; ++i) {
    const size_t n = i % 3 == 0 ? 1 + i % 70 : 200 + i % 300;
    std::vector<double> x = RandomRow(i, n, i % 5 == 0 ? 0.0 : 0.3 * (i % 40));
    if (i % 7 == 0) x[i % n] = kNothing;
    if (*std::max_element(x.begin(), x.end()) == kNothing) continue;
    std::vector<float> weights = WeightsFor(n);
    const sampling::LogSum sum = sampling::ChunkedLogSumExp(x, weights.data());
    const sampling::NoiseKey key{sampling::Finalize(i), sampling::Domain::kToken,
                                 sampling::Finalize(i + 7), static_cast<uint32_t>(i % 8)};
    const sampling::NoisyWinner want = PlainArgmax(x, sum.log, key);
    const sampling::NoisyWinner got = sampling::ArgmaxWithNoise(x, weights.data(), sum, key);
    ASSERT_EQ(got.token, want.token) << i;
    ASSERT_EQ(got.margin, want.margin) << i;
    small_margins += got.margin < sampling::kMarginCap ? 1 : 0;
  }
  EXPECT_GT(small_margins, 3);  // there were cases in which the second best matters
}

TEST(RowKernelsTest, NoiseIsThatOfTheGenerator) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 1003; ++i) tokens.push_back(i * 7 % 5001);
  const sampling::NoiseKey key{sampling::Finalize(3), sampling::Domain::kDraft,
                               sampling::Finalize(4), 5};
  std::vector<double> noise(tokens.size());
  sampling::GumbelMany(key, tokens, noise.data());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(noise[i], sampling::Gumbel(key.seed, key.domain, key.hash, key.slot, tokens[i]))
        << tokens[i];
  }
}

TEST(RowKernelsTest, LogSumExpIsAccurate) {
  for (size_t n : {1, 2, 7, 16, 100, 1000, 4096, 5003}) {
    for (double spread : {0.0, 1.0, 30.0}) {
      const std::vector<double> x = RandomRow(n, n, spread);
      long double sum = 0;
      for (double value : x) sum += std::exp(static_cast<long double>(value));
      const sampling::LogSum got = sampling::ChunkedLogSumExp(x, nullptr);
      EXPECT_NEAR(got.log, static_cast<double>(std::log(sum)), 2e-15 * (1 + std::abs(got.log)))
          << n;
      EXPECT_EQ(got.max, *std::max_element(x.begin(), x.end()));
      EXPECT_EQ(got.argmax, std::max_element(x.begin(), x.end()) - x.begin());
    }
  }
  EXPECT_EQ(sampling::ChunkedLogSumExp(std::vector<double>(5, kNothing), nullptr).log, kNothing);
}

// Every instruction set of this machine gives the same bits.
TEST(RowKernelsTest, SumOfLogitsHasTheBitsOfTheWidenedRow) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const size_t n : {1, 7, 16, 100, 1000, 32771}) {
      const std::vector<double> row = RandomRow(n, n, 5);
      std::vector<float> logits(row.begin(), row.end());
      for (const float odd :
           {0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity()}) {
        if (odd != 0) logits[n / 2] = odd;
        std::vector<double> x(n);
        sampling::WidenRow(logits, x.data());
        const sampling::LogSum want = sampling::ChunkedLogSumExp(x, nullptr);
        const sampling::LogSum got = sampling::LogitsLogSumExp(logits);
        EXPECT_EQ(got.log, want.log) << n;
        EXPECT_EQ(got.max, want.max) << n;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(RowKernelsTest, EveryInstructionSetGivesTheSameBits) {
  std::vector<float> logits;
  for (double value : RandomRow(9, 3001, 4)) logits.push_back(static_cast<float>(value));
  logits[17] = std::numeric_limits<float>::quiet_NaN();
  const auto run = [&] {
    std::vector<double> out(logits.size());
    sampling::WidenRow(logits, out.data());
    sampling::DivideRow(0.7, absl::MakeSpan(out));
    std::vector<float> weights = WeightsFor(out.size());
    const sampling::LogSum sum = sampling::ChunkedLogSumExp(out, weights.data());
    const sampling::NoisyWinner winner =
        sampling::ArgmaxWithNoise(out, weights.data(), sum, {1, sampling::Domain::kToken, 2, 3});
    out.insert(out.end(), weights.begin(), weights.end());
    out.push_back(sum.log);
    out.push_back(winner.token);
    out.push_back(winner.margin);
    return out;
  };
  const std::vector<double> want = run();
  int targets = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(run(), want) << hwy::TargetName(target);
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(targets, 1);
}

}  // namespace
}  // namespace coppice::decoding
