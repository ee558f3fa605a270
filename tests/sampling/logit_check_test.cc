// Logits that a softmax cannot take (NaN, +inf) are found at every position. -inf means a banned
// token.
#include "sampling/logit_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace coppice::decoding {
namespace {

TEST(LogitCheckTest, FindsTheFirstNanOrPlusInfinity) {
  for (const float bad : {NAN, -NAN, INFINITY}) {
    for (size_t at = 0; at < 40; ++at) {
      std::vector<float> logits(40, -1.5f);
      logits[at] = bad;
      logits.back() = bad;
      EXPECT_EQ(sampling::FirstBadLogit(logits), static_cast<int>(at)) << bad;
    }
  }
}

TEST(LogitCheckTest, EveryOtherNumberAndMinusInfinityAreFine) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sampling::FirstBadLogit({0.0f, -0.0f, most, -most, least, -least, -INFINITY}), -1);
  EXPECT_EQ(sampling::FirstBadLogit({}), -1);
}

}  // namespace
}  // namespace coppice::decoding
