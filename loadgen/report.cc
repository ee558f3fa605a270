#include "loadgen/report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace coppice::loadgen {
namespace {

int PeakConcurrent(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& r : records) {
    if (r.endpoint < 0) continue;
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
    const std::optional<double> first = TtftS(r);
    if (!first) continue;
    ttft.push_back(*first * 1e3);
    ttft_queued.push_back((*first + waited) * 1e3);
    if (const std::optional<double> each = TpotS(r)) tpot.push_back(*each * 1e3);
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
  if (report->speculation_reports > 0) report->speculation_source = "usage";
}

void AddEnergy(const std::vector<RequestRecord>& records, RunReport* report) {
  for (const RequestRecord& r : records) {
    if (!r.ok || !r.energy_joules) continue;
    ++report->energy_reports;
    report->energy_joules += *r.energy_joules;
    report->energy_tokens += r.output_tokens;
  }
  if (report->energy_reports > 0) report->energy_source = "usage";
}

// The lag of a client that is free to send. With a limit of concurrency, requests would wait.
void AddSendLag(const std::vector<RequestRecord>& records, const RunSettings& settings,
                RunReport* report) {
  if (!settings.open_loop || settings.max_concurrency > 0) return;
  std::vector<double> lag;
  for (const RequestRecord& r : records) {
    if (r.endpoint >= 0) lag.push_back((r.sent_s - r.intended_s) * 1e3);
  }
  report->send_lag_ms = Summarize(std::move(lag));
  report->valid = report->send_lag_ms.p99 <= settings.max_send_lag_ms;
}

// Failed, timed out and unfinished requests miss; requests that the run cancelled are left out.
void AddGoodput(const std::vector<RequestRecord>& records, const Objectives& objectives,
                RunReport* report) {
  if (!objectives.any()) return;
  int asked = 0, good = 0;
  for (const RequestRecord& r : records) {
    asked += r.cancelled ? 0 : 1;
    good += Meets(r, objectives) ? 1 : 0;
  }
  report->good = good;
  if (report->duration_s > 0) report->request_goodput = good / report->duration_s;
  if (asked > 0) report->good_share = static_cast<double>(good) / asked;
}

void CountRecord(const RequestRecord& r, RunReport* report) {
  report->duration_s = std::max(report->duration_s, r.end_s);
  if (r.endpoint >= 0) ++report->status_counts[r.status];
  report->timed_out += r.timed_out ? 1 : 0;
  report->cancelled += r.cancelled ? 1 : 0;
  report->unfinished += r.unfinished ? 1 : 0;
  report->failed += r.failed() ? 1 : 0;
  if (!r.ok) ++report->error_counts[r.error];
  EndpointReport unsent;
  EndpointReport& place = r.endpoint >= 0 ? report->endpoints[r.endpoint] : unsent;
  ++place.requests;
  place.failed += r.failed() ? 1 : 0;
  if (!r.ok) return;
  ++report->completed;
  ++place.completed;
  place.output_tokens += r.output_tokens;
  report->input_tokens += r.prompt_tokens;
  report->output_tokens += r.output_tokens;
  report->tokens_from_usage = report->tokens_from_usage && r.tokens_from_usage;
}

}  // namespace

RunReport MakeReport(const std::vector<RequestRecord>& records, const RunSettings& settings) {
  RunReport report;
  report.tokens_from_usage = true;
  report.endpoints.resize(settings.urls.size());
  for (const RequestRecord& r : records) CountRecord(r, &report);
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
  AddGoodput(records, settings.objectives, &report);
  return report;
}

void AddCounters(const ServerCounters& before, const ServerCounters& after, RunReport* report) {
  if (report->speculation_reports == 0) {
    if (const auto usage = SpeculationBetween(before, after)) {
      report->speculation = *usage;
      report->speculation_source = "metrics";
    }
  }
  if (report->energy_reports == 0) {
    if (const auto joules = EnergyBetween(before, after)) {
      report->energy_joules = *joules;
      report->energy_tokens = report->output_tokens;
      report->energy_source = "metrics";
    }
  }
}

}  // namespace coppice::loadgen
