// Times of the parts of a step, as the leader measures them: how long forward passes take, and
// whether a draft node that is told when the head begins is still awake when the first request
// arrives. Thread-compatible: owned by the engine.
#pragma once

#include "base/clock.h"

namespace coppice::worker {

class PassTiming {
 public:
  // stay_awake_s: how long a draft node stays awake after an announcement.
  PassTiming(const Clock* clock, double stay_awake_s)
      : clock_(clock), stay_awake_s_(stay_awake_s) {}

  double Now() const { return clock_->NowSeconds(); }
  void PassBegins() { begin_s_ = Now(); }
  void HeadBegins() { head_begin_s_ = Now(); }  // only the head is left to compute
  void PassEnds() { end_s_ = Now(); }
  void FirstVerdictsEnd() { last_end_s_ = Now() - head_begin_s_; }

  double since_pass_s() const { return Now() - end_s_; }
  double pass_s() const { return end_s_ - begin_s_; }  // duration of the last pass
  // True if, in the last step, the time from the head to the first verdicts was within
  // stay_awake_s.
  bool AnnouncementsComeInTime() const { return last_end_s_ <= stay_awake_s_; }

 private:
  const Clock* clock_;
  double stay_awake_s_;
  double begin_s_ = 0, head_begin_s_ = 0, end_s_ = 0, last_end_s_ = 0;
};

}  // namespace coppice::worker
