// The router in front of simulated replicas: what the caches serve, and how even the load is.
#include "lab/bench/routing/routing_simulation.h"

#include <gtest/gtest.h>

namespace coppice::lab {
namespace {

double CachedShare(const RoutingResult& result) {
  return static_cast<double>(result.cached_tokens) / static_cast<double>(result.prompt_tokens);
}

RoutingLoad Mixed(int replicas) {
  RoutingLoad load;
  load.replicas = replicas;
  load.arrivals_per_s = 1.5 * replicas;
  load.chats = 15 * replicas;
  load.questions = load.singles = 20 * replicas;
  return load;
}

class RoutingSimulation : public ::testing::TestWithParam<int> {};

TEST_P(RoutingSimulation, AMixedLoadFindsMoreInTheCachesAndStaysEven) {
  const RoutingLoad load = Mixed(GetParam());
  const RoutingResult router = Simulate(load, ByRouter), least = Simulate(load, ByLeastLoad),
                      home = Simulate(load, ByHomeOf32());
  EXPECT_EQ(router.finished, least.finished);
  EXPECT_GT(CachedShare(router), CachedShare(least) + 0.05);
  EXPECT_GT(CachedShare(router), CachedShare(home) + 0.05);
  EXPECT_LT(router.mean_first_token_s, least.mean_first_token_s);
  EXPECT_LT(router.most_sequences, 1.2);
  EXPECT_LT(router.most_rows, 1.3);
}

TEST_P(RoutingSimulation, AHotPromptAndAShortCommonOneKeepNothingIdle) {
  RoutingLoad hot, common;
  hot.replicas = common.replicas = GetParam();
  hot.arrivals_per_s = common.arrivals_per_s = 3.0 * GetParam();
  hot.questions = common.singles = 60 * GetParam();
  common.common_tokens = 48;
  for (const RoutingLoad& load : {hot, common}) {
    const RoutingResult router = Simulate(load, ByRouter), least = Simulate(load, ByLeastLoad);
    EXPECT_LT(router.most_sequences, 1.2);
    EXPECT_LT(router.mean_gap, least.mean_gap + 1);
    EXPECT_GT(CachedShare(router), CachedShare(least) - 0.02);
  }
}

TEST_P(RoutingSimulation, AReplicaThatDiesIsUsedAgain) {
  RoutingLoad load = Mixed(GetParam());
  const int all = Simulate(load, ByRouter).finished;
  load.dies = 1;
  load.dies_s = 10;
  const RoutingResult result = Simulate(load, ByRouter);
  EXPECT_EQ(result.finished, all);
  EXPECT_LT(result.most_sequences, 1.25);
  EXPECT_GT(CachedShare(result), CachedShare(Simulate(load, ByLeastLoad)) + 0.05);
}

INSTANTIATE_TEST_SUITE_P(Replicas, RoutingSimulation, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace coppice::lab
