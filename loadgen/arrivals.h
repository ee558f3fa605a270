// What the seed decides before the run: when the requests of an open loop are sent, and which
// requests are cancelled. A slow server never delays an arrival (no coordinated omission). Called
// by main. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace coppice::loadgen {

enum class Ramp { kNone, kLinear, kExponential };

struct ArrivalProcess {
  double rate = std::numeric_limits<double>::infinity();  // 1/s; without a ramp
  // Gaps are gamma distributed with this shape: 1 is a Poisson process, below 1 comes in bursts,
  // above 1 is more even.
  double burstiness = 1;
  // With a ramp the rate goes from start to end over the requests: request k of n has the fraction
  // k / (n - 1) of the way, in steps of equal size (linear) or equal ratio (exponential).
  Ramp ramp = Ramp::kNone;
  double ramp_start = 0, ramp_end = 0;  // 1/s, > 0
  double duration_s = 0;                // no arrival at or after it; 0 = no such limit
};

// Seconds since the start of the run, ascending. Without a limit in time: [count]. count 0 (with a
// duration): as many as the duration holds; a ramp then reaches its end about when it is over. An
// infinite rate gives [count] zeros.
std::vector<double> ArrivalTimes(int count, const ArrivalProcess& arrivals, uint64_t seed);

// Whether request k is one of those that are cancelled, percent of all.
bool IsChosenForCancellation(uint64_t seed, int64_t k, double percent);

}  // namespace coppice::loadgen
