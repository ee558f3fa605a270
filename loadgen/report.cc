#include "loadgen/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace coppice::loadgen {
namespace {

// Seconds from sending to the first text, or nothing.
std::optional<double> Ttft(const RequestRecord& r) {
  if (r.text_times_s.empty()) return std::nullopt;
  return r.text_times_s.front() - r.sent_s;
}

double TokensPerChoice(const RequestRecord& r) {
  return static_cast<double>(r.output_tokens) / std::max(1, r.choices);
}

int PeakConcurrent(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& r : records) {
    changes.emplace_back(r.sent_s, 1);
    changes.emplace_back(r.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  int now = 0, peak = 0;
  for (const auto& [time, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

// The most tokens in one whole second of the run. A request's tokens are spread evenly over its
// text events.
double PeakOutput(const std::vector<RequestRecord>& records) {
  std::map<int64_t, double> tokens;
  for (const RequestRecord& r : records) {
    if (!r.ok) continue;
    for (const double time : r.text_times_s) {
      tokens[static_cast<int64_t>(time)] +=
          static_cast<double>(r.output_tokens) / static_cast<double>(r.text_times_s.size());
    }
  }
  double peak = 0;
  for (const auto& [second, count] : tokens) peak = std::max(peak, count);
  return peak;
}

void AddLatencies(const std::vector<RequestRecord>& records, RunReport* report) {
  std::vector<double> ttft, tpot, itl, e2el, queue, ttft_queued, e2el_queued;
  for (const RequestRecord& r : records) {
    if (!r.ok) continue;
    const double latency = r.end_s - r.sent_s, waited = r.sent_s - r.intended_s;
    e2el.push_back(latency * 1e3);
    queue.push_back(waited * 1e3);
    e2el_queued.push_back((latency + waited) * 1e3);
    const std::optional<double> first = Ttft(r);
    if (!first) continue;
    ttft.push_back(*first * 1e3);
    ttft_queued.push_back((*first + waited) * 1e3);
    if (TokensPerChoice(r) > 1) tpot.push_back((latency - *first) / (TokensPerChoice(r) - 1) * 1e3);
    for (size_t i = 1; i < r.text_times_s.size(); ++i) {
      itl.push_back((r.text_times_s[i] - r.text_times_s[i - 1]) * 1e3);
    }
  }
  report->ttft_ms = Summarize(std::move(ttft));
  report->tpot_ms = Summarize(std::move(tpot));
  report->itl_ms = Summarize(std::move(itl));
  report->e2el_ms = Summarize(std::move(e2el));
  report->client_queue_ms = Summarize(std::move(queue));
  report->ttft_queued_ms = Summarize(std::move(ttft_queued));
  report->e2el_queued_ms = Summarize(std::move(e2el_queued));
}

void AddSpeculation(const std::vector<RequestRecord>& records, RunReport* report) {
  SpeculationUsage& sum = report->speculation;
  double width = 0;
  int widths = 0;
  for (const RequestRecord& r : records) {
    if (!r.ok || !r.speculation) continue;
    const SpeculationUsage& usage = *r.speculation;
    ++report->speculation_reports;
    sum.rounds += usage.rounds;
    sum.plain_rounds += usage.plain_rounds;
    sum.target_passes += usage.target_passes;
    sum.layers += usage.layers;
    sum.drafted_nodes += usage.drafted_nodes;
    sum.accepted_nodes += usage.accepted_nodes;
    sum.accepted_by_layer.resize(
        std::max(sum.accepted_by_layer.size(), usage.accepted_by_layer.size()));
    for (size_t i = 0; i < usage.accepted_by_layer.size(); ++i) {
      sum.accepted_by_layer[i] += usage.accepted_by_layer[i];
    }
    if (usage.accepted_width) {
      width += *usage.accepted_width;
      ++widths;
    }
  }
  if (widths > 0) sum.accepted_width = width / widths;
}

void AddEnergy(const std::vector<RequestRecord>& records, RunReport* report) {
  for (const RequestRecord& r : records) {
    if (!r.ok || !r.energy_joules) continue;
    ++report->energy_reports;
    report->energy_joules += *r.energy_joules;
    report->energy_tokens += r.output_tokens;
  }
}

void AddSendLag(const std::vector<RequestRecord>& records, const RunSettings& settings,
                RunReport* report) {
  if (std::isinf(settings.request_rate) || settings.max_concurrency > 0) return;
  std::vector<double> lag;
  for (const RequestRecord& r : records) lag.push_back((r.sent_s - r.intended_s) * 1e3);
  report->send_lag_ms = Summarize(std::move(lag));
  report->valid = report->send_lag_ms.p99 <= settings.max_send_lag_ms;
}

}  // namespace

double Percentile(const std::vector<double>& sorted, double p) {
  const double rank = p / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

SampleStatistics Summarize(std::vector<double> samples) {
  SampleStatistics s;
  s.count = samples.size();
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  const double n = static_cast<double>(samples.size());
  s.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double x : samples) squares += (x - s.mean) * (x - s.mean);
  s.std = std::sqrt(squares / n);
  s.median = Percentile(samples, 50);
  s.p90 = Percentile(samples, 90);
  s.p95 = Percentile(samples, 95);
  s.p99 = Percentile(samples, 99);
  s.max = samples.back();
  return s;
}

RunReport MakeReport(const std::vector<RequestRecord>& records, const RunSettings& settings) {
  RunReport report;
  report.tokens_from_usage = true;
  for (const RequestRecord& r : records) {
    report.duration_s = std::max(report.duration_s, r.end_s);
    ++report.status_counts[r.status];
    report.timed_out += r.timed_out ? 1 : 0;
    if (!r.ok) {
      ++report.failed;
      ++report.error_counts[r.error];
      continue;
    }
    ++report.completed;
    report.input_tokens += r.prompt_tokens;
    report.output_tokens += r.output_tokens;
    report.tokens_from_usage = report.tokens_from_usage && r.tokens_from_usage;
  }
  if (report.duration_s > 0) {
    report.request_throughput = report.completed / report.duration_s;
    report.output_throughput = static_cast<double>(report.output_tokens) / report.duration_s;
    report.total_token_throughput =
        static_cast<double>(report.input_tokens + report.output_tokens) / report.duration_s;
  }
  report.peak_concurrent = PeakConcurrent(records);
  report.peak_output_throughput = PeakOutput(records);
  AddLatencies(records, &report);
  AddSpeculation(records, &report);
  AddEnergy(records, &report);
  AddSendLag(records, settings, &report);
  return report;
}

}  // namespace coppice::loadgen
