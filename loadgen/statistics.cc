#include "loadgen/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coppice::loadgen {

double Percentile(const std::vector<double>& sorted, double p) {
  const double rank = p / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

SampleStatistics Summarize(std::vector<double> samples) {
  SampleStatistics s;
  s.count = samples.size();
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  const double n = static_cast<double>(samples.size());
  s.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double x : samples) squares += (x - s.mean) * (x - s.mean);
  s.std = std::sqrt(squares / n);
  s.median = Percentile(samples, 50);
  s.p90 = Percentile(samples, 90);
  s.p95 = Percentile(samples, 95);
  s.p99 = Percentile(samples, 99);
  s.max = samples.back();
  return s;
}

}  // namespace coppice::loadgen
