// The times at which the requests of an open loop are sent. They are computed from the seed before
// the run, so a slow server never delays them (no coordinated omission). Called by main. Pure
// function.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice::loadgen {

// Seconds since the start of the run, ascending, [count]. Gaps are gamma distributed with shape
// burstiness and mean 1 / rate: 1 is a Poisson process, below 1 comes in bursts, above 1 is more
// even. rate infinite: all 0. rate > 0, burstiness > 0.
std::vector<double> ArrivalTimes(int count, double rate, double burstiness, uint64_t seed);

}  // namespace coppice::loadgen
