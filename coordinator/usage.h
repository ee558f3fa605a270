// Sums the statistics of a request's sequences into its usage and timings. Pure.
#pragma once

#include "coordinator/response_json.h"
#include "proto/control.pb.h"

namespace coppice {

class UsageSum {
 public:
  // first_of_prompt: prefix-cache hits count once per prompt.
  void Add(const proto::SequenceStats& stats, bool first_of_prompt);
  // Token counts and total and first-token times are the caller's to fill.
  Usage usage() const;
  Timings timings() const { return timings_; }

 private:
  Usage usage_;
  Timings timings_;
  double drafted_rounds_ = 0;  // weights of the means
  double width_sum_ = 0, depth_sum_ = 0, accepted_sum_ = 0;
  double overlap_sum_ = 0, overlap_weight_ = 0;
};

}  // namespace coppice
