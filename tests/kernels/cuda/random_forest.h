// Random plans of prefill rows and forests, laid out at random places of a pool. Plain C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// The rows of one request: prefill rows that end at position prefix - 1, then rows with chains.
struct RequestSpec {
  int prefix = 0;        // tokens
  int prefill_rows = 0;  // at most prefix
  std::vector<int> chains;
  // The first `common` tokens, whole blocks, lie where those of request `with` lie, an earlier one.
  int common = 0, with = 0;
};

// Chain lengths of the nodes of a forest: depths 1..deepest at random.
inline std::vector<int> RandomChains(int nodes, int deepest, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int> chains(nodes);
  for (int& chain : chains) chain = 1 + static_cast<int>(generator() % deepest);
  return chains;
}

struct Forest {
  StepPlan plan;
  int64_t blocks = 1;  // of the pool, the sink included
};

// Scratch slots are scattered over blocks of their own; half of them stay dead.
inline Forest MakeForest(const std::vector<RequestSpec>& requests, uint64_t seed) {
  Forest forest;
  StepPlan& plan = forest.plan;
  int64_t scratch_blocks = 1;
  for (const RequestSpec& request : requests) {
    forest.blocks += (request.prefix + kBlockSize - 1) / kBlockSize;
    const int chained = std::accumulate(request.chains.begin(), request.chains.end(), 0);
    scratch_blocks += chained * 2 / kBlockSize + 1;
  }
  forest.blocks += scratch_blocks;
  std::mt19937_64 generator(seed);
  std::vector<int32_t> free_blocks(forest.blocks - 1), free_slots;
  std::iota(free_blocks.begin(), free_blocks.end(), 1);
  std::shuffle(free_blocks.begin(), free_blocks.end(), generator);
  for (int64_t i = 0; i < scratch_blocks * kBlockSize; ++i) {
    free_slots.push_back(free_blocks.back() * kBlockSize + static_cast<int32_t>(i % kBlockSize));
    if (i % kBlockSize == kBlockSize - 1) free_blocks.pop_back();
  }
  std::shuffle(free_slots.begin(), free_slots.end(), generator);
  const auto add_row = [&](int position) {
    plan.token.push_back(0);
    plan.position.push_back(position);
    plan.slot.push_back(0);
    plan.chain_begin.push_back(static_cast<int32_t>(plan.chain.size()));
  };
  for (const RequestSpec& request : requests) {
    Segment segment;
    segment.first_row = plan.rows();
    segment.prefix_len = request.prefix;
    for (int i = 0; i < request.common; i += kBlockSize)
      plan.table.push_back(int32_t{plan.table[plan.table_begin[request.with] + i / kBlockSize]});
    for (int i = request.common; i < request.prefix; i += kBlockSize) {
      plan.table.push_back(free_blocks.back());
      free_blocks.pop_back();
    }
    plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
    for (int i = request.prefix - request.prefill_rows; i < request.prefix; ++i) add_row(i);
    std::vector<int32_t> deepest;  // later rows share its slots, as the nodes of a tree do
    for (const int length : request.chains) {
      const size_t shared = generator() % (std::min<size_t>(deepest.size(), length - 1) + 1);
      std::vector<int32_t> chain(deepest.begin(), deepest.begin() + shared);
      while (static_cast<int>(chain.size()) < length) {
        chain.push_back(free_slots.back());
        free_slots.pop_back();
      }
      if (chain.size() > deepest.size()) deepest = chain;
      plan.chain.insert(plan.chain.end(), chain.begin(), chain.end());
      add_row(request.prefix + length - 1);
    }
    segment.rows = plan.rows() - segment.first_row;
    plan.segments.push_back(segment);
  }
  return forest;
}

// What row r sees, in position order, by the definition of StepPlan.
inline std::vector<int32_t> VisibleSlots(const StepPlan& plan, int r) {
  std::vector<int32_t> slots;
  size_t segment = 0;
  while (r >= plan.segments[segment].first_row + plan.segments[segment].rows) ++segment;
  for (int32_t position = 0; position < plan.prefix_length(r); ++position) {
    const int32_t block = plan.table[plan.table_begin[segment] + position / kBlockSize];
    slots.push_back(block * kBlockSize + position % kBlockSize);
  }
  for (int32_t i = plan.chain_begin[r]; i < plan.chain_begin[r + 1]; ++i) {
    slots.push_back(plan.chain[i]);
  }
  return slots;
}

}  // namespace coppice::kernels::cuda
