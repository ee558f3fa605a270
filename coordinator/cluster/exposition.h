// Collected metrics as text for a scraper: Prometheus 0.0.4 or OpenMetrics 1.0.0, and which of them an
// Accept header asks for. Pure; any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

enum class MetricsFormat { kText, kOpenMetrics };

const char* ContentType(MetricsFormat format);

// OpenMetrics if the header names its version 1.0.0, or no version, with a quality above 0 and not
// below that of text/plain; ranges with * are met by the text format. Otherwise text: a scraper that
// accepts neither gets it too.
MetricsFormat ChooseFormat(absl::string_view accept);

// In OpenMetrics a counter's family is named without _total, a gauge X_info is an info X, and a name
// that ends in a base unit has it as its unit.
std::string Expose(const std::vector<prometheus::MetricFamily>& families, MetricsFormat format);

}  // namespace coppice::coordinator
