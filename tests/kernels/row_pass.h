// A pass with given logits, plans for its rows, and checks of its rows.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "sampling/candidate_list.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {

// Its head passes this rank's part of `logits` [needs, vocab] to Select.
struct RowPass : Pass {
  RowPass(std::vector<float> all, int64_t vocab_size, int rank, int ranks)
      : logits(std::move(all)),
        vocab(vocab_size),
        shard(sampling::VocabularyShard(vocab, rank, ranks)) {
    for (size_t row = 0; row < logits.size() / vocab; ++row) {
      const auto begin = logits.begin() + row * vocab;
      mine.insert(mine.end(), begin + shard.begin, begin + shard.end);
    }
    if (ranks == 1) mine.clear();
  }

  void Body(Ops*) override {}
  void Head(Ops* ops) override {
    ops->Select(TensorOf(mine.empty() ? &logits : &mine, shard.size()), shard.begin, vocab);
  }
  std::vector<float> Row(int need) const {
    return {logits.begin() + need * vocab, logits.begin() + (need + 1) * vocab};
  }

  std::vector<float> logits, mine;
  int64_t vocab;
  sampling::TokenRange shard;
};

// A plan that needs the `count` most likely tokens and the sums of each of `needs` rows.
inline StepPlan TopPlan(int needs, int count) {
  StepPlan plan = PlanOfRows(needs);
  for (int row = 0; row < needs; ++row) {
    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.row = row;
    need.count = count;
    need.sums = true;
    plan.needs.push_back(need);
  }
  return plan;
}

inline absl::StatusOr<const StepRows*> RunStep(Backend* backend, const StepPlan& plan, Pass* pass) {
  const absl::Status submitted = backend->Submit(plan, pass);
  if (!submitted.ok()) return submitted;
  return backend->Wait();
}

// Expects the list to hold the `count` largest logits of the row, and correct logits throughout.
inline void ExpectListsTop(const CandidateRow& listed, const std::vector<float>& row,
                           size_t count) {
  ASSERT_EQ(listed.lists.size(), 1u);
  const TokenList& list = listed.lists[0];
  EXPECT_TRUE(std::is_sorted(list.tokens.begin(), list.tokens.end()));
  for (size_t i = 0; i < list.tokens.size(); ++i)
    EXPECT_EQ(list.logits[i], row[list.tokens[i]]) << "token " << list.tokens[i];
  std::vector<float> expected = row, got = list.logits;
  std::sort(expected.begin(), expected.end(), std::greater<>());
  std::sort(got.begin(), got.end(), std::greater<>());
  ASSERT_GE(got.size(), count);
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + count, expected.begin()));
}

}  // namespace coppice::kernels
