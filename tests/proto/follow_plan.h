// Follows every index of a plan that was accepted, as a step does. An index outside its array ends
// the test or the fuzz target.
#pragma once

#include <vector>

#include "plan/plan_check.h"
#include "plan/step_plan.h"
#include "tests/testing/fuzz_require.h"

namespace coppice::proto {

inline void FollowPlan(const coppice::StepPlan& plan, const PlanLimits& limits) {
  using test::Require;
  std::vector<char> pool(limits.blocks * kBlockSize, 0);
  for (const KvCopy& copy : plan.commits) pool.at(copy.destination) = pool.at(copy.source);
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    const int32_t* table = plan.table.data() + plan.table_begin.at(s);
    for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      pool.at(plan.slot.at(row)) = 1;
      for (int i = 0; i < plan.prefix_length(row); ++i) {
        Require(plan.table_begin.at(s) + i / kBlockSize < plan.table_begin.at(s + 1),
                "a row reads past its block table");
        Require(pool.at(int64_t{table[i / kBlockSize]} * kBlockSize + i % kBlockSize) >= 0, "");
      }
      for (int i = plan.chain_begin.at(row); i < plan.chain_begin.at(row + 1); ++i)
        Require(pool.at(plan.chain.at(i)) >= 0, "");
    }
  }
  std::vector<std::vector<int32_t>> pages(limits.groups, std::vector<int32_t>(limits.blocks));
  for (const PageChange& change : plan.pages) {
    pages.at(change.group).at(change.block) = change.page;
    Require(change.page >= 0 && change.page < limits.pages, "a page outside the pool");
  }
  for (const coppice::RowNeed& need : plan.needs) {
    Require(plan.token.at(need.row) >= 0, "a need of a row without a token");
    for (int i = need.bias_begin; i < need.bias_end; ++i)
      Require(plan.bias.at(i).first < limits.vocab_size, "a bias outside the vocabulary");
  }
  for (const int32_t need : plan.fetch)
    Require(need < limits.needs_before, "fetches a need that was not there");
}

}  // namespace coppice::proto
