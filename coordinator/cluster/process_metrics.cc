#include "coordinator/cluster/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace coppice::coordinator {
namespace {

std::string FileText(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Fields of /proc/self/stat, by their numbers in proc(5).
enum StatField { kUserTicks = 14, kSystemTicks = 15, kStartTicks = 22, kBytes = 23, kPages = 24 };

class Stat {
 public:
  Stat() {
    const std::string text = FileText("/proc/self/stat");
    const size_t name_end = text.rfind(')');  // the name may have spaces and brackets
    if (name_end == std::string::npos) return;
    fields_ = absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipWhitespace());
  }
  std::optional<double> Get(StatField number) const {
    constexpr int kFirst = 3;
    double value = 0;
    if (number - kFirst >= fields_.size() || !absl::SimpleAtod(fields_[number - kFirst], &value))
      return std::nullopt;
    return value;
  }

 private:
  std::vector<std::string> fields_;
};

// Unix seconds.
std::optional<double> BootTime() {
  for (const absl::string_view line : absl::StrSplit(FileText("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::StartsWith(line, "btime ") && absl::SimpleAtod(line.substr(6), &seconds))
      return seconds;
  }
  return std::nullopt;
}

std::optional<double> OpenDescriptors() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  double count = -1;  // one is that of the folder
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) ++count;
  return error ? std::nullopt : std::optional(count);
}

std::optional<double> MostDescriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(limit.rlim_cur);
}

std::optional<double> Sum(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

std::optional<double> Times(std::optional<double> a, double factor) {
  return a ? std::optional(*a * factor) : std::nullopt;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics() {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, MetricType type,
                       std::optional<double> value) {
    if (!value) return;
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
    families.push_back({name, help, type, {std::move(metric)}});
  };
  const Stat stat;
  const double tick_s = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  add("process_cpu_seconds_total", "User and system time of the coordinator, in seconds.",
      MetricType::Counter, Times(Sum(stat.Get(kUserTicks), stat.Get(kSystemTicks)), tick_s));
  add("process_resident_memory_bytes", "Resident memory of the coordinator.", MetricType::Gauge,
      Times(stat.Get(kPages), static_cast<double>(sysconf(_SC_PAGESIZE))));
  add("process_virtual_memory_bytes", "Virtual memory of the coordinator.", MetricType::Gauge,
      stat.Get(kBytes));
  add("process_open_fds", "Open file descriptors of the coordinator.", MetricType::Gauge,
      OpenDescriptors());
  add("process_max_fds", "Most file descriptors that the coordinator may open.", MetricType::Gauge,
      MostDescriptors());
  add("process_start_time_seconds", "Start of the coordinator, in seconds since 1970.",
      MetricType::Gauge, Sum(BootTime(), Times(stat.Get(kStartTicks), tick_s)));
  return families;
}

}  // namespace coppice::coordinator
