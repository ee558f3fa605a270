// Service level objectives: the latencies that a request must keep to count for goodput. Called by
// options and report. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "loadgen/record.h"

namespace coppice::loadgen {

// Upper bounds in ms; absent = no such objective.
struct Objectives {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;

  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

// "ttft:200 tpot:50 e2el:5000", separated by spaces, commas or line breaks.
absl::StatusOr<Objectives> ParseObjectives(const std::string& text);

// ttft and e2el count from the intended time, so that a wait within the client counts too. A
// request that did not succeed misses.
bool Meets(const RequestRecord& record, const Objectives& objectives);

}  // namespace coppice::loadgen
