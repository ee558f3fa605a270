#include "base/progress_watchdog.h"

#include <algorithm>

namespace coppice {

ProgressWatchdog::ProgressWatchdog(const Clock* clock)
    : clock_(clock == nullptr ? &steady_ : clock),
      since_s_(clock_->NowSeconds()),
      last_look_s_(since_s_),
      awake_since_s_(since_s_) {}

void ProgressWatchdog::Wait() {
  if (working_) MovesOn();
  since_s_ = clock_->NowSeconds();
  working_ = false;
}

void ProgressWatchdog::Begin() {
  if (working_) return;
  since_s_ = clock_->NowSeconds();
  working_ = true;
}

void ProgressWatchdog::MovesOn() {
  const double now_s = clock_->NowSeconds();
  longest_stall_s_ = std::max<double>(longest_stall_s_, now_s - since_s_);
  since_s_ = now_s;
}

void ProgressWatchdog::Stepped() {
  MovesOn();
  ++steps_;
}

ProgressReport ProgressWatchdog::Look(double longest_gap_s) {
  const double now_s = clock_->NowSeconds();
  if (now_s - last_look_s_ > longest_gap_s) awake_since_s_ = now_s;
  last_look_s_ = now_s;
  ProgressReport report;
  report.working = working_;
  report.still_s = std::max(0.0, now_s - std::max<double>(since_s_, awake_since_s_));
  report.steps = steps_;
  report.longest_stall_s = longest_stall_s_;
  return report;
}

}  // namespace coppice
