// Time limits of tests that follow the machine's speed, as in tests/cluster/stopwatch.py. Called by
// tests that wait for other threads and processes. Thread-compatible.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace coppice::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSlowdown = 5;
#else
inline constexpr double kSlowdown = 1;
#endif

// Counts seconds of a machine with a free core for each thread. While more threads want to run than
// there are cores, it counts more slowly, by the share of a core that each gets, but at least a
// tenth.
class Stopwatch {
 public:
  // Call it now and then: the share is measured when it is called.
  double Seconds() {
    const auto now = std::chrono::steady_clock::now();
    const double share = Share();
    counted_s_ +=
        std::chrono::duration<double>(now - read_).count() * (share_ + share) / 2 / kSlowdown;
    read_ = now;
    share_ = share;
    return counted_s_;
  }

 private:
  static double Share() {
    std::ifstream file("/proc/loadavg");
    std::string load;
    double running = 0;  // at first this thread alone
    if (!(file >> load >> load >> load >> running)) return 1;
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
    return std::clamp(CPU_COUNT(&cores) / std::max(running - 1, 1.0), 0.1, 1.0);
  }

  std::chrono::steady_clock::time_point read_ = std::chrono::steady_clock::now();
  double share_ = Share();
  double counted_s_ = 0;
};

// Waits until the condition holds. Returns false if it does not within so many seconds on a
// stopwatch.
template <typename Condition>
bool Eventually(Condition condition, double seconds = 20) {
  Stopwatch watch;
  std::chrono::microseconds pause(20);
  while (!condition()) {
    if (watch.Seconds() >= seconds) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5000));
  }
  return true;
}

}  // namespace coppice::test
