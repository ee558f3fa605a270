// Ratios with standard errors. Every figure of the laboratory is a ratio of sums (layers over
// passes, accepted over tried). Only prompts are independent, so the error is a delete-one
// jackknife over prompts. Thread-compatible.
#pragma once

#include <vector>

namespace coppice::lab {

struct Estimate {
  double value = 0;           // NaN: nothing was counted
  double standard_error = 0;  // NaN: fewer than two groups counted anything
  double count = 0;           // sum of the denominators
};

class RatioSample {
 public:
  explicit RatioSample(int groups) : numerator_(groups), denominator_(groups) {}
  void Add(int group, double numerator, double denominator) {
    numerator_[group] += numerator;
    denominator_[group] += denominator;
  }
  // R = sum a / sum b; standard error from R_(-g), the ratio without group g:
  // sqrt((G - 1) / G * sum (R_(-g) - mean)^2) over the G groups that have a denominator.
  Estimate Get() const;

 private:
  std::vector<double> numerator_, denominator_;  // [groups]
};

}  // namespace coppice::lab
