// Where threads wait until a test lets them go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace coppice::coordinator {

class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    opened_.wait_for(lock, std::chrono::minutes(10), [this] { return open_; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  int arrived() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return arrived_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  int arrived_ = 0;
  bool open_ = false;
};

}  // namespace coppice::coordinator
