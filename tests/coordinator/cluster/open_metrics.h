// A strict reader of OpenMetrics 1.0.0 text, as far as counters, gauges, histograms and infos go.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

struct OpenMetricsFamily {
  std::string type, unit, help;
  // By name with labels, as written.
  std::vector<std::pair<std::string, double>> samples;
};

// By name. Throws std::runtime_error with the line that breaks a rule: metadata before samples and
// once, samples of a family together and named as its type asks for, labels well-formed, no sample
// twice, buckets ascending and cumulative with +Inf = _count, a unit that ends the name, # EOF last.
std::map<std::string, OpenMetricsFamily> ReadOpenMetrics(absl::string_view text);

}  // namespace coppice::coordinator
