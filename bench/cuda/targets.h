// How fast the CUDA backend is to be, as ratios to what the same device was measured to do: the goals
// of docs/cuda.md 13, and what a run of the other parts says of each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace coppice::bench {

// Layers that a round of beam sampling of width 4 gains: drafts whose overlap with the target is 0.7.
inline constexpr double kLayersPerRound = 3.1;

// What was measured: by "part, name" the median in microseconds, and the bytes that it must move.
struct Measured {
  struct Case {
    double us = 0, bytes = 0;
  };
  std::map<std::string, Case> cases;
  double bandwidth = 0;  // bytes per second; 0: not measured

  // Of the lines that --json wrote. InvalidArgument names a line that is none of them.
  static absl::StatusOr<Measured> Read(const std::string& path);
};

struct Goal {
  const char* what;
  const char* unit;
  bool at_least;  // else at most
  double bound;
  std::optional<double> value;  // nullopt: what it follows from was not measured
  bool met() const { return value.has_value() && (at_least ? *value >= bound : *value <= bound); }
};
std::vector<Goal> GoalsOf(const Measured& measured);

}  // namespace coppice::bench
