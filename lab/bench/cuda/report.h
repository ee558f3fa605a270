// What was measured, against its floor: a line of text on stdout and a line of JSON in a file for
// each case. Without a device it lists the cases, with the floors that follow from shapes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace coppice::bench {

// A measurement, and its lower bounds.
struct BenchCase {
  std::string part, name;
  double bytes = 0;  // moved in device memory at least; 0: no floor
};

// The unit and name of the rate that floors and goals are computed from: reading alone.
inline constexpr char kBandwidth[] = "bytes_per_second";

struct Timing {
  double us = 0;      // median
  double spread = 0;  // (ninth decile - first decile) / median
};

class Report {
 public:
  // bandwidth: bytes per second, 0 when it is not known. json may be nullptr. listing: nothing is
  // measured. tuning_cache: BackendOptions::tuning_cache.
  Report(double bandwidth, std::FILE* json, bool listing, std::string tuning_cache)
      : bandwidth_(bandwidth),
        json_(json),
        listing_(listing),
        tuning_cache_(std::move(tuning_cache)) {}
  bool listing() const { return listing_; }
  const std::string& tuning_cache() const { return tuning_cache_; }

  // Whether to measure this case. False when listing, after a line for it.
  bool Wants(const BenchCase& bench_case);
  void Add(const BenchCase& bench_case, const Timing& timing);
  // A rate that others are compared with: unit kBandwidth, "copied_bytes_per_second" or
  // "flops_per_second".
  void AddCeiling(const std::string& name, const std::string& unit, double rate, double spread);
  // Something that is counted, not timed.
  void AddCount(const BenchCase& bench_case, int64_t count);

 private:
  double FloorUs(const BenchCase& bench_case) const;

  const double bandwidth_;
  std::FILE* const json_;
  const bool listing_;
  const std::string tuning_cache_;
};

}  // namespace coppice::bench
