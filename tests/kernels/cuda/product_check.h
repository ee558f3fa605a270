// Holds a product against double precision. Used by the tests of the kernels for a few rows.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

// run.c: the shape; run.w, run.x, run.before, run.bias: what the kernel read; run.y: what it left.
// The counters must be 0 again.
template <class Run>
void ExpectProduct(const Run& run) {
  for (int r = 0; r < run.c.rows; ++r) {
    for (int64_t n = 0; n < run.c.outputs; ++n) {
      double want = 0, size = 0;
      for (int64_t k = 0; k < run.c.inputs; ++k) {
        const double term = double{dev::ToFloat(run.x[r * run.c.inputs + k])} *
                            dev::ToFloat(run.w[n * run.c.inputs + k]);
        want += term;
        size += std::abs(term);
      }
      if (run.c.bias) want += run.bias[n];
      if (run.c.accumulate) want += dev::ToFloat(run.before[r * run.c.outputs + n]);
      ExpectNear(run.y[r * run.c.outputs + n], want, size + std::abs(want) + 2, 1e-6,
                 run.c.Name() + " at " + std::to_string(r) + ", " + std::to_string(n));
      if (testing::Test::HasFailure()) return;
    }
  }
  for (size_t i = 0; i < run.counters.size(); ++i) ASSERT_EQ(run.counters[i], 0u) << run.c.Name();
}

}  // namespace coppice::kernels::cuda
