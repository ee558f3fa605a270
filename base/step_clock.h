// Whether a compute thread gets on: it says when it has nothing to do, when it has work and when a
// step, or a part of one, is done; another thread, which beats for the node, asks how long it has
// shown no progress. Made with the model's host, moved on by engine, draft service, model and
// start-up, read by the node agent. Look: one watching thread; all else: one compute thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace coppice {

// What the watching thread sees.
struct StepReport {
  bool working = false;  // it has work
  double still_s = 0;    // since its last progress, or since it was last seen with nothing to do
  uint64_t steps = 0;    // done so far
  double longest_still_s = 0;  // between two signs of progress, while it had work
};

class StepClock {
 public:
  // clock must outlive this; nullptr: the steady clock.
  explicit StepClock(const Clock* clock = nullptr);
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void Wait();     // nothing to do; said again each time that a bounded wait has ended
  void Begin();    // there is work, or may be: from now on a step is due
  void MovesOn();  // a part of a step is done: a layer, a verdict
  void Stepped();  // a step is done

  // To be called regularly. Time in which the watching thread itself did not run, more than
  // longest_gap_s between two calls, counts for nothing: the whole process was stopped or starved.
  StepReport Look(double longest_gap_s);

 private:
  const SteadyClock steady_;
  const Clock* const clock_;
  std::atomic<double> since_s_;
  std::atomic<bool> working_{false};
  std::atomic<uint64_t> steps_{0};
  std::atomic<double> longest_still_s_{0};
  double last_look_s_, awake_since_s_;  // watching thread
};

}  // namespace coppice
