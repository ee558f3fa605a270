// How the size of drafts is chosen, replayed without a clock: tokens per second of no drafts, of
// prescribed shapes and of the sizer's choice, on machines, numbers of clients and kinds of
// requests. bench_sizer_replay [--machine NAME] [--quality NAME] [--clients N] [--rounds N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lab/bench/worker/replayed_replica.h"

namespace coppice::lab {
namespace {

int Quantile(std::vector<int> rows, double share) {
  std::sort(rows.begin(), rows.end());
  return rows.empty() ? 0 : rows[static_cast<size_t>(share * (rows.size() - 1))];
}

double ShareBeyond(const std::vector<int>& rows, int ridge) {
  const auto beyond = std::count_if(rows.begin(), rows.end(), [&](int of) { return of > ridge; });
  return static_cast<double>(beyond) / std::max<size_t>(1, rows.size());
}

int Main(int argc, char** argv) {
  std::string machine, quality;
  int clients = 0, requests = 12, seeds = 1;
  bool fixed = true, products = true;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--machine") machine = value;
    if (flag == "--quality") quality = value;
    if (flag == "--clients") clients = std::atoi(value.c_str());
    if (flag == "--requests") requests = std::atoi(value.c_str());
    if (flag == "--seeds") seeds = std::atoi(value.c_str());
    if (flag == "--fixed") fixed = value == "1";
    if (flag == "--products") products = value == "1";
  }
  for (const MachineCosts& costs : Machines()) {
    if (!machine.empty() && costs.name != machine) continue;
    for (const DraftQuality& of : Qualities()) {
      if (!quality.empty() && of.name != quality) continue;
      for (const int n : {1, 2, 4, 8, 16, 32, 64}) {
        if (clients > 0 && clients != n) continue;
        ReplayOptions options;
        options.clients = n;
        options.requests = n * requests;
        options.knows_products = products;
        const auto rate = [&](const ReplayOptions& with, ReplayResult* last) {
          double sum = 0;
          for (int s = 0; s < seeds; ++s) {
            ReplayOptions seeded = with;
            seeded.seed = 1 + 100 * s;
            *last = Replay(costs, of, seeded);
            sum += last->tokens_per_s;
          }
          return sum / seeds;
        };
        ReplayResult result;
        ReplayOptions plain = options;
        plain.drafts = false;
        const double none = rate(plain, &result);
        const double chosen = rate(options, &result);
        const ReplayResult auto_result = result;
        double best = 0;
        std::string best_shape = "-";
        if (fixed) {
          const int w = of.beams;
          for (const int width : {1, 2, 4, 8, 16, 24, 32}) {
            if (width > (w == 1 ? 4 : 2 * w)) continue;
            for (const int depth : {1, 2, 3, 4, 6}) {
              ReplayOptions with = options;
              with.width = width;
              with.depth = depth;
              const double its = rate(with, &result);
              if (its <= best) continue;
              best = its;
              best_shape = std::to_string(width) + "x" + std::to_string(depth);
            }
          }
        }
        std::printf(
            "%-10s %-14s %3d none %8.1f auto/none %.3f fixed/none %.3f (%s) auto/bar %.3f layers "
            "%.2f drafted %.2f read %.2f rows %d %d %d beyond 200 %.3f\n",
            costs.name.c_str(), of.name.c_str(), n, none, chosen / none, best / none,
            best_shape.c_str(), chosen / std::max(best, none), auto_result.layers_per_round,
            auto_result.drafted_share, auto_result.read_share, Quantile(auto_result.step_rows, .5),
            Quantile(auto_result.step_rows, .99), Quantile(auto_result.step_rows, 1),
            ShareBeyond(auto_result.step_rows, 200));
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace coppice::lab

int main(int argc, char** argv) { return coppice::lab::Main(argc, argv); }
