// Summary of samples. Used by report. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

namespace coppice::loadgen {

// Exact percentile with linear interpolation between ranks (NumPy's default). sorted ascending, not
// empty; p in [0, 100].
double Percentile(const std::vector<double>& sorted, double p);

// count 0: nothing was measured; ignore the other fields.
struct SampleStatistics {
  size_t count = 0;
  double mean = 0, median = 0, std = 0;  // std: population standard deviation
  double p90 = 0, p95 = 0, p99 = 0, max = 0;
};
SampleStatistics Summarize(std::vector<double> samples);

}  // namespace coppice::loadgen
