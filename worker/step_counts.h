// Counts a replica's steps by rows and by time, as histograms of its status. Thread-compatible:
// owned by the engine.
#pragma once

#include <string>
#include <vector>

#include "plan/histogram_buckets.h"
#include "proto/control.pb.h"

namespace coppice::worker {

class StepCounts {
 public:
  // kind: prefill (only rows of prompts), verify (none of them) or mixed.
  void Add(const char* kind, int rows, double seconds, proto::NodeCounters* counters) const {
    Observe(row_bounds_, rows, counters->mutable_step_rows());
    Observe(time_bounds_, seconds, &(*counters->mutable_step_seconds())[kind]);
  }

 private:
  static void Observe(const std::vector<double>& bounds, double value,
                      proto::Histogram* histogram) {
    size_t bucket = 0;
    while (bucket < bounds.size() && value > bounds[bucket]) ++bucket;
    while (histogram->counts_size() <= static_cast<int>(bounds.size())) histogram->add_counts(0);
    histogram->set_counts(static_cast<int>(bucket),
                          histogram->counts(static_cast<int>(bucket)) + 1);
    histogram->set_sum(histogram->sum() + value);
  }

  const std::vector<double> row_bounds_ = StepRowBounds(), time_bounds_ = StepTimeBounds();
};

}  // namespace coppice::worker
