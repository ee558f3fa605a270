// The report of a run: statistics over its records, the printed table, the result JSON. Called by
// main after the run. Pure functions.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "loadgen/objectives.h"
#include "loadgen/record.h"
#include "loadgen/server_info.h"
#include "loadgen/statistics.h"

namespace coppice::loadgen {

// Facts about a run besides its records, for the report.
struct RunSettings {
  std::string model, endpoint, command_line, date;  // date: YYYYmmdd-HHMMSS
  std::vector<std::string> urls;                    // base URLs of the servers
  std::optional<std::string> server_version;
  bool open_loop = false;
  std::optional<double> request_rate;  // 1/s, for an open loop with one rate
  double burstiness = 1;
  int max_concurrency = 0;  // 0 = no limit
  double max_send_lag_ms = 10;
  Objectives objectives;
  int dropped_rows = 0, empty_rows = 0;  // trace rows: too long for the model; without tokens
  std::vector<std::string> metadata;     // K=V
};

struct EndpointReport {
  int requests = 0, completed = 0, failed = 0;
  int64_t output_tokens = 0;
};

struct RunReport {
  int completed = 0, failed = 0, timed_out = 0;  // failed: timed_out too
  int cancelled = 0, unfinished = 0;             // neither completed nor failed
  double duration_s = 0;
  int64_t input_tokens = 0, output_tokens = 0;  // of completed requests
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // 1/s
  double peak_output_throughput = 0;  // most tokens in one second
  int peak_concurrent = 0;
  bool tokens_from_usage = false;
  // With objectives: requests that keep them, per second, and as a share of all but the cancelled.
  int good = 0;
  std::optional<double> request_goodput, good_share;
  SampleStatistics ttft_ms, tpot_ms, itl_ms, e2el_ms, client_queue_ms, ttft_queued_ms,
      e2el_queued_ms;
  SampleStatistics send_lag_ms;  // open loop without a limit only
  bool valid = true;             // false: the client itself was too slow
  std::map<int, int> status_counts;
  std::map<std::string, int> error_counts;
  std::vector<EndpointReport> endpoints;  // as RunSettings::urls

  // Sums over usage.speculation of this many requests, else the servers' counters. accepted_width:
  // mean over the requests (or the sequences) that have one.
  int speculation_reports = 0;
  const char* speculation_source = nullptr;  // "usage", "metrics"; nullptr = none
  SpeculationUsage speculation;

  // Sums over the completed requests whose usage has energy_joules, else the nodes' consumption.
  int energy_reports = 0;
  const char* energy_source = nullptr;  // as speculation_source
  double energy_joules = 0;
  int64_t energy_tokens = 0;  // output tokens that it is for

  // Resources that the client itself used.
  double cpu_percent = 0;
  int64_t peak_memory_bytes = 0;
  ByteCount bytes;
};

// duration_s: from the start of the run to the end of the last request.
RunReport MakeReport(const std::vector<RequestRecord>& records, const RunSettings& settings);
// Fills the values that no usage gave from the servers' counters.
void AddCounters(const ServerCounters& before, const ServerCounters& after, RunReport* report);

std::string ReportTable(const RunReport& report, const RunSettings& settings);

enum class Detail { kSummary, kArrays, kArraysAndTexts };
// With detail: the arrays, in request order.
nlohmann::json ResultJson(const RunReport& report, const RunSettings& settings,
                          const std::vector<RequestRecord>& records, Detail detail);

}  // namespace coppice::loadgen
