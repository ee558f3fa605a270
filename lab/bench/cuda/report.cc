#include "lab/bench/cuda/report.h"

#include "absl/strings/str_format.h"

namespace coppice::bench {

double Report::FloorUs(const BenchCase& bench_case) const {
  return bandwidth_ > 0 ? bench_case.bytes / bandwidth_ * 1e6 : 0;
}

bool Report::Wants(const BenchCase& bench_case) {
  if (!listing_) return true;
  std::string floor = "no bandwidth given";
  if (bench_case.bytes == 0) {
    floor = "no floor";
  } else if (bandwidth_ > 0) {
    floor = absl::StrFormat("floor %.1f us", FloorUs(bench_case));
  }
  absl::PrintF("%-15s %-60s %14.0f bytes  %s\n", bench_case.part, bench_case.name, bench_case.bytes,
               floor);
  return false;
}

void Report::Add(const BenchCase& bench_case, const Timing& timing) {
  const double floor = FloorUs(bench_case);
  std::string against = "         -      -", fields = "\"floor_us\":null,\"percent\":null";
  if (floor > 0) {
    const double percent = 100 * floor / timing.us;
    against = absl::StrFormat("%10.1f %5.0f%%", floor, percent);
    fields = absl::StrFormat("\"floor_us\":%.3f,\"percent\":%.1f", floor, percent);
  }
  absl::PrintF("%-15s %-60s %10.1f %s  spread %.0f%%\n", bench_case.part, bench_case.name,
               timing.us, against, 100 * timing.spread);
  std::fflush(stdout);
  if (json_ == nullptr) return;
  absl::FPrintF(
      json_, "{\"part\":\"%s\",\"name\":\"%s\",\"us\":%.3f,\"spread\":%.4f,\"bytes\":%.0f,%s}\n",
      bench_case.part, bench_case.name, timing.us, timing.spread, bench_case.bytes, fields);
  std::fflush(json_);
}

void Report::AddCeiling(const std::string& name, const std::string& unit, double rate,
                        double spread) {
  absl::PrintF("%-15s %-60s %10.3e %s  spread %.0f%%\n", "ceilings", name, rate, unit,
               100 * spread);
  std::fflush(stdout);
  if (json_ == nullptr) return;
  absl::FPrintF(json_, "{\"part\":\"ceilings\",\"name\":\"%s\",\"%s\":%.4e,\"spread\":%.4f}\n",
                name, unit, rate, spread);
  std::fflush(json_);
}

void Report::AddCount(const BenchCase& bench_case, int64_t count) {
  absl::PrintF("%-15s %-60s %10d\n", bench_case.part, bench_case.name, count);
  std::fflush(stdout);
  if (json_ == nullptr) return;
  absl::FPrintF(json_, "{\"part\":\"%s\",\"name\":\"%s\",\"count\":%d}\n", bench_case.part,
                bench_case.name, count);
  std::fflush(json_);
}

}  // namespace coppice::bench
