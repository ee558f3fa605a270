// The report of a run: statistics over its records, the printed table, the result JSON. Called by
// main after the run. Pure functions.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "loadgen/record.h"

namespace coppice::loadgen {

// Exact percentile with linear interpolation between ranks (NumPy's default). sorted ascending, not
// empty; p in [0, 100].
double Percentile(const std::vector<double>& sorted, double p);

// count 0: nothing was measured; ignore the other fields.
struct SampleStatistics {
  size_t count = 0;
  double mean = 0, median = 0, std = 0;  // population standard deviation
  double p90 = 0, p95 = 0, p99 = 0, max = 0;
};
SampleStatistics Summarize(std::vector<double> samples);

struct RunSettings {
  std::string model, base_url, endpoint, command_line, date;  // date: YYYYmmdd-HHMMSS
  double request_rate = 0;  // 1/s; infinite = as soon as there is room
  double burstiness = 1;
  int max_concurrency = 0;  // 0 = no limit
  double max_send_lag_ms = 10;
  std::vector<std::string> metadata;  // K=V
};

struct RunReport {
  int completed = 0, failed = 0, timed_out = 0;
  double duration_s = 0;
  int64_t input_tokens = 0, output_tokens = 0;  // of completed requests
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // 1/s
  double peak_output_throughput = 0;  // most tokens in one second
  int peak_concurrent = 0;
  bool tokens_from_usage = false;
  SampleStatistics ttft_ms, tpot_ms, itl_ms, e2el_ms, client_queue_ms, ttft_queued_ms,
      e2el_queued_ms;
  SampleStatistics send_lag_ms;  // open loop without a limit only
  bool valid = true;             // false: the client itself was too slow
  std::map<int, int> status_counts;
  std::map<std::string, int> error_counts;

  // Sums over usage.speculation; reports 0 = the server gives none.
  int speculation_reports = 0;
  SpeculationUsage speculation;  // accepted_width: mean over the requests that have one

  // Sums over the completed requests whose usage has energy_joules.
  int energy_reports = 0;
  double energy_joules = 0;
  int64_t energy_tokens = 0;  // output tokens of those requests
};

// duration_s: from the start of the run to the end of the last request.
RunReport MakeReport(const std::vector<RequestRecord>& records, const RunSettings& settings);

std::string ReportTable(const RunReport& report, const RunSettings& settings);

// detailed adds the arrays, in request order.
nlohmann::json ResultJson(const RunReport& report, const RunSettings& settings,
                          const std::vector<RequestRecord>& records, bool detailed);

}  // namespace coppice::loadgen
