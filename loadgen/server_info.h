// What a run requests from its servers besides completions: the model, the version, the counters.
// Called by main before and after the run.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "loadgen/options.h"
#include "loadgen/record.h"

namespace coppice::loadgen {

struct ModelInfo {
  std::string name;
  int max_model_len = 0;  // 0 = the server does not say
};
// Waits until every server answers, as long as the options allow. The model is the one that they
// name, else the first of the first server's list.
absl::StatusOr<ModelInfo> WaitForModel(const LoadgenOptions& options);

// version of GET /version, or nothing.
std::optional<std::string> ServerVersion(const LoadgenOptions& options);

// The counters of /metrics that a report can use, summed over their labels and over the servers.
// Names are without the server's prefix and _total.
struct ServerCounters {
  std::map<std::string, double> totals;
  std::map<int, double> accepted_by_position;  // from 0
};
// Prometheus text with the names of Coppice (coppice_), vLLM (vllm:) or llama.cpp (llamacpp:);
// other lines are ignored.
ServerCounters ParseCounters(const std::string& metrics);
// Servers without /metrics add nothing.
ServerCounters FetchCounters(const LoadgenOptions& options);

// What happened between the two, or nothing if no draft was verified. Rounds without a draft are
// not known from counters.
std::optional<SpeculationUsage> SpeculationBetween(const ServerCounters& before,
                                                   const ServerCounters& after);
// Joules of all nodes, idle or not; nothing if they are not measured.
std::optional<double> EnergyBetween(const ServerCounters& before, const ServerCounters& after);

}  // namespace coppice::loadgen
