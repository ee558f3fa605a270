// Lets one process of a host tune at a time: two that measure on one device disturb each other, and
// what the first has found serves the second. Movable; released by its end, or by that of its
// process.
#pragma once

#include <functional>
#include <string>

namespace coppice::kernels::cuda {

class TuningLock {
 public:
  // Waits for the lock, at most so long, and calls moves_on (may be empty) meanwhile. Whoever comes
  // too late, or where no lock can be had (`path` cannot be written), goes on without it.
  static TuningLock Wait(const std::string& path, double most_s,
                         const std::function<void()>& moves_on);
  TuningLock() = default;
  TuningLock(TuningLock&& other) noexcept;
  TuningLock& operator=(TuningLock&& other) noexcept;
  ~TuningLock();

  bool held() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace coppice::kernels::cuda
