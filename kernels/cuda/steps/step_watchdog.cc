#include "kernels/cuda/steps/step_watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace coppice::kernels::cuda {
namespace {

constexpr std::chrono::milliseconds kLook(20);
constexpr double kLongestGap_s = 2;  // after a longer gap the process was stopped or starved
constexpr std::chrono::seconds kComesBackWithin(3);

}  // namespace

StepWatchdog::StepWatchdog(DeviceCollectives* collectives, double deadline_s,
                           std::function<void(const absl::Status&)> on_hang)
    : collectives_(collectives), deadline_s_(deadline_s), on_hang_(std::move(on_hang)) {
  progress_.Wait();
  thread_ = std::thread([this] { Run(); });
}

StepWatchdog::~StepWatchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StepWatchdog::Begin(uint64_t step) {
  progress_.Begin();
  const std::lock_guard<std::mutex> lock(mutex_);
  step_ = step;
  in_step_ = true;
}

void StepWatchdog::End() {
  progress_.Wait();
  const std::lock_guard<std::mutex> lock(mutex_);
  in_step_ = false;
  changed_.notify_all();
}

absl::Status StepWatchdog::Look(std::unique_lock<std::mutex>* lock) {
  const bool in_step = in_step_;
  lock->unlock();
  absl::Status status = in_step ? collectives_->Failure() : absl::OkStatus();
  const double still_s = progress_.Look(kLongestGap_s).still_s;
  if (in_step && status.ok() && still_s > deadline_s_) {
    status = absl::DeadlineExceededError(absl::StrFormat(
        "the ranks have not ended it within %.1f s (--step_deadline)", deadline_s_));
  }
  lock->lock();
  return status;
}

void StepWatchdog::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return over_; })) {
    const uint64_t step = step_;
    const absl::Status status = Look(&lock);
    const auto ended = [&] { return over_ || !in_step_ || step_ != step; };
    if (status.ok() || ended()) continue;
    lock.unlock();
    collectives_->Abort(status);
    alarmed_ = true;
    lock.lock();
    if (changed_.wait_for(lock, kComesBackWithin, ended)) continue;
    if (on_hang_) {
      lock.unlock();
      on_hang_(absl::Status(status.code(), absl::StrCat("step ", step, ": ", status.message())));
      lock.lock();
    }
    changed_.wait(lock, ended);
  }
}

}  // namespace coppice::kernels::cuda
