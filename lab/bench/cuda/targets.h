// Target speeds of the CUDA backend, as ratios to measurements of the same device: the goals of
// docs/cuda.md 13, and the result of a run for each of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace coppice::bench {

// Forests of beam sampling of width 4: four levels of this many nodes, and the layers that a round
// gains by them with drafts whose overlap with the target is 0.7 (docs/cuda.md 13).
struct RoundShape {
  int width;
  double layers;
  constexpr int rows() const { return 4 + 4 * width; }  // for the target, of a request
};
inline constexpr RoundShape kRoundShapes[] = {{7, 3.1}, {4, 2.54}};

// What was measured: by "part, name" the median in microseconds, and the bytes that it must move.
struct Measured {
  struct Case {
    double us = 0, bytes = 0;
  };
  std::map<std::string, Case> cases;
  double bandwidth = 0;  // bytes per second; 0: not measured

  // Reads lines that --json wrote. InvalidArgument names any other line.
  static absl::StatusOr<Measured> Read(const std::string& path);
};

struct Goal {
  const char* what;
  const char* unit;
  bool at_least;  // false: at most
  double bound;
  std::optional<double> value;  // nullopt: a measurement that it follows from is missing
  bool met() const { return value.has_value() && (at_least ? *value >= bound : *value <= bound); }
};
std::vector<Goal> GoalsOf(const Measured& measured);

}  // namespace coppice::bench
