// Replicas in virtual time behind the coordinator's router: which prompt tokens the prefix caches
// serve, and how even the load is. Requests are made from a seed, caches are the block managers of
// the model, and a step takes a fixed time and a time for each row. Deterministic, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "coordinator/cluster/router.h"

namespace coppice::lab {

struct RoutingLoad {
  int replicas = 4;
  int64_t kv_blocks = 2048;  // of a replica, 16 tokens each
  // Chats whose turns come one after another; each begins with one of `chat_systems` prompts.
  int chats = 0, chat_turns = 6, chat_systems = 3, chat_system_tokens = 400;
  // Short questions behind one long prompt that all have.
  int questions = 0, question_system_tokens = 2000;
  // Prompts that share nothing but their first `common_tokens`.
  int singles = 0, common_tokens = 0;
  double arrivals_per_s = 10;  // of chats, questions and singles together
  uint64_t seed = 1;
  // A replica that loses its memory, and when; -1: none.
  int dies = -1;
  double dies_s = 0;
};

struct RoutingResult {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  // Sequences, and rows computed: the busiest replica's over the mean of all.
  double most_sequences = 0, most_rows = 0;
  // Over time, the most sequences that one replica runs, less the fewest.
  double mean_gap = 0;
  double mean_first_token_s = 0, p99_first_token_s = 0, mean_latency_s = 0;
  double makespan_s = 0;
  int finished = 0;
};

using RoutingRule = std::function<std::string(const coordinator::Router& router,
                                              const std::vector<const coordinator::Node*>& room,
                                              absl::Span<const TokenId> prompt)>;
// The coordinator's; and the one with the fewest sequences, then the most free KV.
std::string ByRouter(const coordinator::Router& router,
                     const std::vector<const coordinator::Node*>& room,
                     absl::Span<const TokenId> prompt);
std::string ByLeastLoad(const coordinator::Router& router,
                        const std::vector<const coordinator::Node*>& room,
                        absl::Span<const TokenId> prompt);
// Until 2026-11-28: the freest by eighths of the pool, then the last home of the first 32 tokens.
RoutingRule ByHomeOf32();
// matched / prompt - relative load, as the load-aware router of vLLM's production stack.
RoutingRule ByMatchLessLoad();

RoutingResult Simulate(const RoutingLoad& load, const RoutingRule& rule);

}  // namespace coppice::lab
