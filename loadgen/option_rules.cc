#include "loadgen/option_rules.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace coppice::loadgen {
namespace {

bool IsHeaderName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
}

absl::Status CheckServers(const LoadgenOptions& o) {
  if (o.servers.urls.empty()) return RefuseFlag("base_url", "expected at least one");
  std::set<std::string> names = {"host", "content-length", "transfer-encoding", "connection"};
  for (const auto& [name, value] : o.servers.headers) {
    if (!IsHeaderName(name)) return RefuseFlag("header", "expected K=V");
    if (!names.insert(absl::AsciiStrToLower(name)).second) {
      return RefuseFlag("header", absl::StrCat(name, " is set already"));
    }
    for (const unsigned char c : value) {
      if (absl::ascii_iscntrl(c)) return RefuseFlag("header", "expected no control characters");
    }
  }
  for (const unsigned char c : o.request_id_prefix) {
    if (!absl::ascii_isgraph(c)) {
      return RefuseFlag("request_id_prefix", "expected printable ASCII without spaces");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDataset(const LoadgenOptions& o) {
  const bool random = o.dataset_name == "random";
  if (!random && o.dataset_path.empty()) {
    return RefuseFlag("dataset_path",
                      absl::StrCat("expected a file with --dataset_name=", o.dataset_name));
  }
  if (random && !o.dataset_path.empty()) {
    return RefuseFlag("dataset_path", "has no effect with --dataset_name=random");
  }
  if (o.all_turns && o.dataset_name != "spec_bench") {
    return RefuseFlag("turns", "needs --dataset_name=spec_bench");
  }
  return absl::OkStatus();
}

absl::Status CheckArrivals(const LoadgenOptions& o) {
  const ArrivalProcess& arrivals = o.arrivals;
  if (arrivals.ramp != Ramp::kNone) {
    if (!std::isinf(arrivals.rate)) return RefuseFlag("request_rate", "has no effect with a ramp");
    if (!(arrivals.ramp_start > 0)) return RefuseFlag("ramp_up_start_rps", "expected more than 0");
    if (!(arrivals.ramp_end > 0)) return RefuseFlag("ramp_up_end_rps", "expected more than 0");
  } else if (arrivals.ramp_start != 0 || arrivals.ramp_end != 0) {
    return RefuseFlag("ramp_up_strategy", "expected linear or exponential with the rates");
  }
  if (o.trace_times() && (arrivals.ramp != Ramp::kNone || !std::isinf(arrivals.rate))) {
    return RefuseFlag("self_timed", "false is needed with a rate: the trace has its own times");
  }
  if (!o.trace() && o.window_s != 0) return RefuseFlag("trace_window", "needs azure or burstgpt");
  if (!o.trace_times() && o.trace_speed != 1) {
    return RefuseFlag("trace_speed", "has no effect without the times of a trace");
  }
  return absl::OkStatus();
}

absl::Status CheckDuration(const LoadgenOptions& o) {
  if (o.benchmark_s > 0 && o.num_prompts == 0 && !o.open_loop() && o.max_concurrency == 0) {
    return RefuseFlag("benchmark_duration", "needs --request_rate, a ramp or --max_concurrency");
  }
  return absl::OkStatus();
}

absl::Status CheckResult(const LoadgenOptions& o) {
  if (o.save_detailed && !o.save_result) {
    return RefuseFlag("save_detailed", "has no effect without --save_result");
  }
  if (o.save_texts && !o.save_detailed) {
    return RefuseFlag("save_texts", "has no effect without --save_detailed");
  }
  for (const std::string& pair : o.metadata) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) return RefuseFlag("metadata", "expected K=V");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseFlag(absl::string_view flag, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", expected));
}

absl::Status CheckOptions(const LoadgenOptions& options) {
  for (const auto check : {CheckServers, CheckDataset, CheckArrivals, CheckDuration, CheckResult}) {
    const absl::Status status = check(options);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace coppice::loadgen
