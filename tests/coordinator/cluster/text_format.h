// A strict reader of the Prometheus text format 0.0.4, as far as counters, gauges and histograms go.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

struct TextFamily {
  std::string type, help;
  // By name with labels, as written.
  std::vector<std::pair<std::string, double>> samples;
};

// By name. Throws std::runtime_error with the line that breaks a rule: metadata before samples and
// once, samples of a family together and named as its type asks for, a counter's name with _total,
// labels well-formed, no sample twice, buckets ascending and cumulative with +Inf = _count.
std::map<std::string, TextFamily> ReadTextFormat(absl::string_view text);

}  // namespace coppice::coordinator
