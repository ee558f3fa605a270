#include "coordinator/http/rate_limiter.h"

#include <gtest/gtest.h>

namespace coppice::coordinator {
namespace {

TEST(RateLimiter, WithoutALimitAllAreTaken) {
  RateLimiter limiter(0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limiter.Take("a", 0), 0);
}

TEST(RateLimiter, AFullBucketRefillsAtItsRate) {
  RateLimiter limiter(6);  // one in ten seconds
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limiter.Take("a", 100), 0);
  EXPECT_EQ(limiter.Take("a", 100), 10);
  EXPECT_EQ(limiter.Take("a", 104.5), 6);
  EXPECT_EQ(limiter.Take("a", 110), 0);
  EXPECT_EQ(limiter.Take("a", 110), 10);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limiter.Take("a", 1000), 0);  // not more than full
  EXPECT_EQ(limiter.Take("a", 1000), 10);
}

TEST(RateLimiter, CallersHaveBucketsOfTheirOwn) {
  RateLimiter limiter(1);
  EXPECT_EQ(limiter.Take("a", 0), 0);
  EXPECT_GT(limiter.Take("a", 0), 0);
  EXPECT_EQ(limiter.Take("b", 0), 0);
}

}  // namespace
}  // namespace coppice::coordinator
