// Measures how long a compute thread has made no progress. The compute thread says when it has
// nothing to do, when it has work, and when a step or a part of one is done. The thread that sends
// the node's heartbeats reads it. Owned by the model runner; set by engine, draft service, model
// and start-up; read by the node agent. One watching thread calls Look; one compute thread calls
// everything else.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace coppice {

// The result of Look.
struct ProgressReport {
  bool working = false;        // it has work
  double still_s = 0;          // since its last progress, or since it last had nothing to do
  uint64_t steps = 0;          // done so far
  double longest_stall_s = 0;  // the longest time without progress while it had work
};

class ProgressWatchdog {
 public:
  // clock must outlive this; nullptr: the steady clock.
  explicit ProgressWatchdog(const Clock* clock = nullptr);
  ProgressWatchdog(const ProgressWatchdog&) = delete;
  ProgressWatchdog& operator=(const ProgressWatchdog&) = delete;

  void Wait();     // there is nothing to do; call it again after every bounded wait
  void Begin();    // there is work, or may be: a step is expected from now on
  void MovesOn();  // a part of a step is done: a layer, a verdict
  void Stepped();  // a step is done

  // Call it regularly. A gap of more than longest_gap_s between two calls is not counted, because
  // the whole process was then stopped or starved.
  ProgressReport Look(double longest_gap_s);

 private:
  const SteadyClock steady_;
  const Clock* const clock_;
  std::atomic<double> since_s_;
  std::atomic<bool> working_{false};
  std::atomic<uint64_t> steps_{0};
  std::atomic<double> longest_stall_s_{0};
  double last_look_s_, awake_since_s_;  // used by the watching thread
};

}  // namespace coppice
