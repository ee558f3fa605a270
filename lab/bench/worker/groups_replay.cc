// Whether sequences should take turns in two groups, so that the target verifies one while drafts
// are made for the other: tokens per second of one group, of two, and of the product, by the share
// of a draft in the round and by what rows cost, replayed without a clock.
// bench_groups_replay [--clients N] [--seeds N] [--auto 1]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lab/bench/worker/replayed_replica.h"

namespace coppice::lab {
namespace {

constexpr int kDepth = 4;
constexpr double kWhole_ms = 10;  // a step of all sequences, with their forests
constexpr double kLevel_ms = 0.04;

// A step of `rows` rows takes kWhole_ms, of which `linear` is in proportion to the rows.
MachineCosts Costs(int rows, double linear, double draft_share, bool shares_cores) {
  MachineCosts costs;
  costs.row_ms = linear * kWhole_ms / rows;
  const double fixed_ms = (1 - linear) * kWhole_ms;
  costs.step_ms = {{1, fixed_ms + costs.row_ms}, {rows, kWhole_ms}};
  const double level_ms = draft_share * kWhole_ms / kDepth;
  costs.level_ms = std::max(0.05, level_ms - kLevel_ms * rows / (1 + kDepth));
  costs.prompt_row_ms = 0.002;
  costs.shares_cores = shares_cores;
  return costs;
}

double Rate(const MachineCosts& costs, ReplayOptions options, int seeds) {
  double sum = 0;
  for (int s = 0; s < seeds; ++s) {
    options.seed = 1 + 100 * s;
    sum += Replay(costs, Qualities()[0], options).tokens_per_s / seeds;
  }
  return sum;
}

int Main(int argc, char** argv) {
  int only = 0, seeds = 3;
  bool chosen = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--clients") only = std::atoi(argv[i + 1]);
    if (flag == "--seeds") seeds = std::atoi(argv[i + 1]);
    if (flag == "--auto") chosen = std::atoi(argv[i + 1]) == 1;
  }
  for (const bool shares : {false, true}) {
    for (const int clients : {2, 4, 8, 16}) {
      if (only > 0 && clients != only) continue;
      for (const double linear : {0.0, 0.25, 0.5, 1.0}) {
        for (const double share : {0.2, 0.5, 1.0}) {
          const MachineCosts costs = Costs(clients * (1 + kDepth), linear, share, shares);
          ReplayOptions options;
          options.clients = clients;
          options.requests = 12 * clients;
          options.prompt_low = 16, options.prompt_high = 64;
          options.tokens_low = 128, options.tokens_high = 384;
          if (!chosen) options.width = 1, options.depth = kDepth;
          options.groups = ReplayOptions::Groups::kOne;
          const double one = Rate(costs, options, seeds);
          options.groups = ReplayOptions::Groups::kTwo;
          const double two = Rate(costs, options, seeds);
          options.groups = ReplayOptions::Groups::kProduct;
          const double product = Rate(costs, options, seeds);
          std::printf(
              "%-6s %2d clients, %3.0f %% linear, draft/step %.1f: one %6.1f two/one %.3f "
              "product/one %.3f product/best %.3f\n",
              shares ? "shared" : "own", clients, 100 * linear, share, one, two / one,
              product / one, product / std::max(one, two));
          std::fflush(stdout);
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace coppice::lab

int main(int argc, char** argv) { return coppice::lab::Main(argc, argv); }
