// Replicas whose ranks are threads that share one device: sharding on a single GPU. Sums go through the
// host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda/rank_runners.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

// The model has 2 KV heads, so that four ranks share them; vocabulary and inner size do not divide.
class OneDeviceTest : public testing::TestWithParam<int>, protected RankRunners {
 protected:
  OneDeviceTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = 97;
    tiny.intermediate = 51;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    options_.dir = dir_.path();
    options_.backend = "cuda";
    options_.dtype = "f32";
    options_.kv_bytes = 1 << 20;
    options_.threads = 1;
    options_.max_rows = 64;
    // Also on a machine where each rank finds a device of its own.
    options_.collectives.kind = "host";
  }

  Greedy Decode(int ranks) {
    Greedy greedy;
    const auto ends = RunRanks(ranks, [&](ModelRunner* runner) {
      return DecodeGreedily(runner, {4, 5, 6, 7, 8, 9}, 12, &greedy);
    });
    EXPECT_THAT(ends, testing::Each(absl::OkStatus()));
    return greedy;
  }

  const test::TempDir dir_;
};

TEST_P(OneDeviceTest, RanksChooseTheTokensOfOneRank) {
  const Greedy want = Decode(1), got = Decode(GetParam());
  EXPECT_THAT(description_, testing::HasSubstr("sums through the host"));
  EXPECT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.rows.size(), want.rows.size());
  for (size_t i = 0; i < want.rows.size(); ++i)
    EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneDeviceTest, testing::Values(2, 4));

}  // namespace
}  // namespace coppice::model
