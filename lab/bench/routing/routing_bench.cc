// Prints what the router and other rules make of the loads of lab/bench/routing, a line each.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lab/bench/routing/routing_simulation.h"

namespace coppice::lab {
namespace {

void Print(const std::string& name, const RoutingLoad& load) {
  const std::vector<std::pair<const char*, RoutingRule>> rules = {
      {"home of 32 tokens", ByHomeOf32()},
      {"least load", ByLeastLoad},
      {"match less load", ByMatchLessLoad()},
      {"router", ByRouter}};
  for (const auto& [rule_name, rule] : rules) {
    const RoutingResult r = Simulate(load, rule);
    std::printf("%-16s %d  %-18s %5.1f %%  %5.2f %5.2f %6.2f  %7.3f %7.3f %7.2f  %6.1f\n",
                name.c_str(), load.replicas, rule_name,
                100.0 * static_cast<double>(r.cached_tokens) / static_cast<double>(r.prompt_tokens),
                r.most_sequences, r.most_rows, r.mean_gap, r.mean_first_token_s,
                r.p99_first_token_s, r.mean_latency_s, r.makespan_s);
  }
}

}  // namespace
}  // namespace coppice::lab

int main() {
  using coppice::lab::RoutingLoad;
  std::printf(
      "load        replicas  rule               cached   seqs  rows    gap  first_s   p99_s"
      " latency  all_s\n");
  for (const int replicas : {2, 4, 8}) {
    RoutingLoad load;
    load.replicas = replicas;
    load.arrivals_per_s = 1.5 * replicas;
    load.chats = 30 * replicas;
    load.questions = 60 * replicas;
    load.singles = 60 * replicas;
    coppice::lab::Print("mixed", load);
    RoutingLoad busy = load;
    busy.arrivals_per_s = 3.0 * replicas;
    busy.kv_blocks = 1024;
    coppice::lab::Print("busy", busy);
    RoutingLoad dies = load;
    dies.dies = 1;
    dies.dies_s = 60;
    coppice::lab::Print("a replica dies", dies);
    RoutingLoad chats;
    chats.replicas = replicas;
    chats.chats = 60 * replicas;
    chats.arrivals_per_s = replicas;
    coppice::lab::Print("chats", chats);
    RoutingLoad hot;
    hot.replicas = replicas;
    hot.questions = 200 * replicas;
    hot.arrivals_per_s = 4 * replicas;
    coppice::lab::Print("hot prompt", hot);
    RoutingLoad common;
    common.replicas = replicas;
    common.singles = 150 * replicas;
    common.common_tokens = 48;
    common.arrivals_per_s = 3 * replicas;
    coppice::lab::Print("common 48 tokens", common);
  }
  return 0;
}
