// The logits of a tiny model, for tests that compare two folders bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

// Of the last three of seven rows: [3, vocabulary].
inline std::vector<float> LastLogits(const test::TinyLlama& model, int ranks,
                                     const std::string& dtype, const std::string& weight_dtype) {
  const test::TempDir dir;
  test::WriteTinyLlama(model, dir.path());
  const StepPlan plan = PlanSketch(32).Prefix({5, 17, 90, 3, 0, 95, 44}, 0, 7, 3).plan;
  std::vector<float> logits;
  test::RunRanks(ranks, [&](comm::Communicator* communicator) {
    auto loaded = LoadForTest(
        {.dir = dir.path(), .dtype = dtype, .weight_dtype = weight_dtype, .max_rows = 8},
        communicator);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto rows = loaded->Run(plan);
    ASSERT_TRUE(rows.ok()) << rows.status();
    if (communicator->rank() == 0) logits = *rows;
  });
  return logits;
}

}  // namespace coppice::model
