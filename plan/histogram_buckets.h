// The upper bounds of the histograms of steps, in which nodes count and which the coordinator
// shows.
#pragma once

#include <vector>

namespace coppice {

// 1, 2, 5, 10, ... thousandths of a second, up to 1000 s.
inline std::vector<double> StepTimeBounds() {
  std::vector<double> bounds;
  for (double decade = 0.001; decade < 1000; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) bounds.push_back(decade * step);
  }
  bounds.push_back(1000);
  return bounds;
}

// Powers of two, 1 to 4096 rows.
inline std::vector<double> StepRowBounds() {
  std::vector<double> bounds;
  for (double rows = 1; rows <= 4096; rows *= 2) bounds.push_back(rows);
  return bounds;
}

}  // namespace coppice
