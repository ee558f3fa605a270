// Target speeds of the CUDA backend, as ratios to measurements of the same device: the goals of
// docs/cuda.md 4, and the result of a run for each of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace coppice::bench {

// Rows of a request in a plain step of beam sampling of width 4, and roots of its forests: beams that
// are equal share a row. Real pairs had 1.4 to 2.5 distinct ones.
inline constexpr int kRoots = 2;

// Forests of that decoding. Layers: simulations at an overlap of 0.7; those of the last are the 2.02
// of one at 0.76, by LayersOf.
struct RoundShape {
  int width, depth;  // nodes of a level, levels
  double layers;     // that a round gains at an overlap of kShapeOverlap
  constexpr int rows() const { return kRoots + depth * width; }  // for the target, of a request
};
inline constexpr double kShapeOverlap = 0.7;
inline constexpr RoundShape kRoundShapes[] = {{7, 4, 3.09}, {4, 4, 2.54}, {2, 2, 1.86}};
// What steps of kMostRequests verify: more rows would cost more than they gain.
inline constexpr RoundShape kNarrowShape = kRoundShapes[2];

// The overlap with the target, the sum of min(p, q), that goals assume of kDrafts[draft]. Of the
// drafts of an 8B model it was not measured: 0.7 is the middle of the simulations, 0.52 was measured
// of a draft with a tenth of its target's parameters on prompts that it had not learned.
constexpr double AssumedOverlap(int draft) { return draft == 0 ? 0.7 : 0.52; }
// The layers of a round with such a draft: what they are above 1, a plain step's, grows with the
// overlap as in the simulation of 4 levels of 8 nodes (algorithms.md 10).
double LayersOf(const RoundShape& shape, double overlap);

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
