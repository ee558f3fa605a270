// For tests: time that goes on with each look at it.
#pragma once

#include "base/clock.h"

namespace coppice::worker {

// Every look at it takes 0.1 ms, so a pass takes about as long whatever its rows.
class TickingClock : public Clock {
 public:
  double NowSeconds() const override { return now_s += 1e-4; }
  mutable double now_s = 0;
};

}  // namespace coppice::worker
