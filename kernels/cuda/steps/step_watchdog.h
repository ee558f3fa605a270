// Watches, from its own thread, the steps that ranks run together. A step that does not end by its
// deadline, or whose collectives fail, is aborted, so that the thread of the steps returns with an
// error. If it does not return, the maker of the backend is told. Owned by CudaBackend; Begin and
// End are for the thread of the steps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "base/progress_watchdog.h"
#include "kernels/cuda/collectives/device_collectives.h"

namespace coppice::kernels::cuda {

class StepWatchdog {
 public:
  // *collectives must outlive the watch. on_hang: CollectiveOptions.
  StepWatchdog(DeviceCollectives* collectives, double deadline_s,
               std::function<void(const absl::Status&)> on_hang);
  ~StepWatchdog();

  void Begin(uint64_t step);
  void End();
  // Whether a step was aborted. Any thread.
  bool alarmed() const { return alarmed_; }

 private:
  void Run();
  // The fault of the current step. Releases the lock meanwhile.
  absl::Status Look(std::unique_lock<std::mutex>* lock);

  DeviceCollectives* const collectives_;
  const double deadline_s_;
  const std::function<void(const absl::Status&)> on_hang_;
  std::atomic<bool> alarmed_ = false;
  ProgressWatchdog progress_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  uint64_t step_ = 0;
  bool in_step_ = false, over_ = false;
  std::thread thread_;
};

}  // namespace coppice::kernels::cuda
