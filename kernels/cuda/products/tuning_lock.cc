#include "kernels/cuda/products/tuning_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace coppice::kernels::cuda {
namespace {

constexpr std::chrono::milliseconds kLook(20);

}  // namespace

TuningLock TuningLock::Wait(const std::string& path, double most_s,
                            const std::function<void()>& moves_on) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  TuningLock lock;
  lock.file_ = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  const SteadyClock clock;
  const double end_s = clock.NowSeconds() + most_s;
  while (lock.held() && flock(lock.file_, LOCK_EX | LOCK_NB) != 0) {
    if (clock.NowSeconds() >= end_s) return TuningLock();
    if (moves_on) moves_on();
    std::this_thread::sleep_for(kLook);
  }
  return lock;
}

TuningLock::TuningLock(TuningLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

TuningLock& TuningLock::operator=(TuningLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

TuningLock::~TuningLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace coppice::kernels::cuda
