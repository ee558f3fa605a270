// Lets one process of a host tune at a time: two that measure on one device disturb each other, and
// the results of the first also serve the second. Movable; released at its end, or at the end of
// its process.
#pragma once

#include <functional>
#include <string>

namespace coppice::kernels::cuda {

class TuningLock {
 public:
  // Waits for the lock, at most this long, and calls moves_on (may be empty) meanwhile. Without the
  // lock (too late, or `path` cannot be written) the caller continues all the same.
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
