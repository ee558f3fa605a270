// A clock that is passed as an argument. Services take a Clock; tests pass a ManualClock. Threads
// that wait on sockets (comm/, loadgen/) read the steady clock instead, since they wait in real
// time.
#pragma once

#include <chrono>

namespace coppice {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double NowSeconds() const = 0;  // monotonic, seconds since an arbitrary origin
};

class SteadyClock : public Clock {
 public:
  double NowSeconds() const override {
    return std::chrono::duration<double>(SteadyNow().time_since_epoch()).count();
  }
};

class ManualClock : public Clock {
 public:
  double NowSeconds() const override { return now_s; }
  double now_s = 0;
};

}  // namespace coppice
