#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadgen/report.h"

namespace coppice::loadgen {
namespace {

constexpr int kWidth = 50;

std::string Title(const std::string& text, char fill) {
  const int left = (kWidth - static_cast<int>(text.size())) / 2;
  const int right = kWidth - left - static_cast<int>(text.size());
  return absl::StrCat(std::string(left, fill), text, std::string(right, fill), "\n");
}

std::string Row(const std::string& name, int64_t value) {
  return absl::StrFormat("%-40s %-10d\n", name, value);
}
std::string Row(const std::string& name, double value) {
  return absl::StrFormat("%-40s %-10.2f\n", name, value);
}
std::string Row(const std::string& name, const std::string& value) {
  return absl::StrFormat("%-40s %-10s\n", name, value);
}

std::string LatencyRows(const std::string& title, const std::string& name,
                        const SampleStatistics& s) {
  std::string out = Title(title, '-');
  if (s.count == 0) return out + Row("Mean " + name + " (ms):", std::string("none"));
  return absl::StrCat(out, Row("Mean " + name + " (ms):", s.mean),
                      Row("Median " + name + " (ms):", s.median),
                      Row("P99 " + name + " (ms):", s.p99));
}

std::string SpeculationRows(const RunReport& report) {
  std::string out = Title("Beams and Speculation", '-');
  const SpeculationUsage& s = report.speculation;
  if (report.speculation_source == nullptr) {
    return out + Row("Speculation statistics:", std::string("none in usage or /metrics"));
  }
  out += Row("Source:", std::string(report.speculation_source));
  if (s.target_passes > 0) {
    out += Row("Layers per target pass:",
               static_cast<double>(s.layers) / static_cast<double>(s.target_passes));
  }
  out += s.accepted_width ? Row("Accepted width:", *s.accepted_width)
                          : Row("Accepted width:", std::string("none"));
  out += Row("Drafted nodes:", s.drafted_nodes);
  out += Row("Accepted nodes:", s.accepted_nodes);
  const int64_t drafts = s.rounds - s.plain_rounds;
  for (size_t i = 0; drafts > 0 && i < s.accepted_by_layer.size(); ++i) {
    out += Row(absl::StrCat("Accepted per draft, layer ", i + 1, ":"),
               static_cast<double>(s.accepted_by_layer[i]) / static_cast<double>(drafts));
  }
  if (report.speculation_reports == 0) return out + Row("Drafts:", s.rounds);
  return out + Row("Rounds:", s.rounds) + Row("Plain rounds:", s.plain_rounds);
}

// From usage, the figures are of those requests that have one: a sum over some must not look like
// one over all. From /metrics, they are of the nodes, idle or not.
std::string EnergyRows(const RunReport& report) {
  std::string out = Title("Energy", '-');
  if (report.energy_source == nullptr)
    return out + Row("Energy:", std::string("none in usage or /metrics"));
  out += Row("Source:", std::string(report.energy_source));
  if (report.energy_reports > 0 && report.energy_reports < report.completed)
    out += Row("Requests with a figure:", int64_t{report.energy_reports});
  out += Row("Energy (J):", report.energy_joules);
  if (report.energy_tokens == 0) return out;
  return out + absl::StrFormat("%-40s %-10.4g\n", "Energy per output token (J):",
                               report.energy_joules / static_cast<double>(report.energy_tokens));
}

std::string ClientRows(const RunReport& report) {
  std::string out = Title("Client", '-');
  const SampleStatistics& lag = report.send_lag_ms;
  if (lag.count > 0) {
    out += Row("Send lag P50 (ms):", lag.median);
    out += Row("Send lag P99 (ms):", lag.p99);
    out += Row("Send lag max (ms):", lag.max);
  } else {
    out += Row("Send lag:", std::string("not measured (limited concurrency)"));
  }
  out += Row("Peak streams:", int64_t{report.peak_concurrent});
  out += Row("CPU (%):", report.cpu_percent);
  out += Row("Peak memory (MiB):", static_cast<double>(report.peak_memory_bytes) / (1 << 20));
  out += Row("Bytes sent:", report.bytes.sent);
  out += Row("Bytes received:", report.bytes.received);
  out += Row("Token count source:", std::string(report.tokens_from_usage ? "usage" : "events"));
  return out;
}

}  // namespace

std::string ReportTable(const RunReport& report, const RunSettings& settings) {
  std::string out = Title(" Serving Benchmark Result ", '=');
  out += Row("Successful requests:", int64_t{report.completed});
  out += Row("Failed requests:", int64_t{report.failed});
  if (report.cancelled > 0) out += Row("Cancelled requests:", int64_t{report.cancelled});
  if (report.unfinished > 0) out += Row("Unfinished requests:", int64_t{report.unfinished});
  if (settings.dropped_rows > 0)
    out += Row("Trace rows beyond the model's context:", int64_t{settings.dropped_rows});
  if (settings.empty_rows > 0)
    out += Row("Trace rows without tokens:", int64_t{settings.empty_rows});
  if (settings.max_concurrency > 0) {
    out += Row("Maximum request concurrency:", int64_t{settings.max_concurrency});
  }
  if (settings.request_rate) out += Row("Request rate configured (RPS):", *settings.request_rate);
  out += Row("Benchmark duration (s):", report.duration_s);
  out += Row("Total input tokens:", report.input_tokens);
  out += Row("Total generated tokens:", report.output_tokens);
  out += Row("Request throughput (req/s):", report.request_throughput);
  if (report.request_goodput) out += Row("Request goodput (req/s):", *report.request_goodput);
  if (report.good_share) out += Row("Requests within objectives (%):", 100 * *report.good_share);
  out += Row("Output token throughput (tok/s):", report.output_throughput);
  out += Row("Peak output token throughput (tok/s):", report.peak_output_throughput);
  out += Row("Peak concurrent requests:", int64_t{report.peak_concurrent});
  out += Row("Total token throughput (tok/s):", report.total_token_throughput);
  out += LatencyRows("Time to First Token", "TTFT", report.ttft_ms);
  out += LatencyRows("Time per Output Token (excl. 1st token)", "TPOT", report.tpot_ms);
  out += LatencyRows("Inter-token Latency", "ITL", report.itl_ms);
  out += LatencyRows("End-to-end Latency", "E2EL", report.e2el_ms);
  out += SpeculationRows(report) + EnergyRows(report) + ClientRows(report);
  for (const auto& [error, count] : report.error_counts) {
    out += absl::StrCat("Not completed (", count, "): ", error, "\n");
  }
  if (!report.valid) {
    out += absl::StrFormat("INVALID: send lag P99 %.2f ms is above %.2f ms: the client was late\n",
                           report.send_lag_ms.p99, settings.max_send_lag_ms);
  }
  return out + std::string(kWidth, '=') + "\n";
}

}  // namespace coppice::loadgen
