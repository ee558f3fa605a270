// The standard metrics of a process (process_cpu_seconds_total, ...), which have no prefix. Read
// from /proc at each call; what cannot be read is left out. Any thread.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace coppice::coordinator {

std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace coppice::coordinator
