#include "base/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace coppice {
namespace {

constexpr int kTurnsAlone = 8;  // turns of 16 pauses: about 2 to 5 us in all
thread_local int this_thread = 0;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Condition>
void SpinUntil(Condition done) {
  for (int spins = 0; !done(); ++spins) {
    if (spins < 2000) {
      Pause();
    } else {
      sched_yield();  // the helper may have lost its core to another process
    }
  }
}

uint64_t FirstOf(uint64_t share) { return share >> 16 & 0xffff; }
uint64_t EndOf(uint64_t share) { return share & 0xffff; }

}  // namespace

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

ThreadTeam::ThreadTeam(int threads) : count_(threads), shares_(new Share[std::max(1, threads)]) {
  COPPICE_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { HelperLoop(i); });
}

ThreadTeam::~ThreadTeam() {
  Wait();
  KeepAwake(false);
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

int ThreadTeam::ThisThread() { return this_thread; }

ThreadTeam::AsCaller::AsCaller() : before_(std::exchange(this_thread, 0)) {}
ThreadTeam::AsCaller::~AsCaller() { this_thread = before_; }

bool ThreadTeam::RunOneChunk(int thread) {
  for (int i = 0; i < count(); ++i) {
    std::atomic<uint64_t>& left = shares_[(thread + i) % count()].left;
    uint64_t share = left.load(std::memory_order_acquire);
    while (FirstOf(share) < EndOf(share)) {
      const bool own = i == 0;
      if (left.compare_exchange_weak(share, own ? share + (1 << 16) : share - 1,
                                     std::memory_order_acq_rel, std::memory_order_acquire)) {
        function_(context_, static_cast<int>(own ? FirstOf(share) : EndOf(share) - 1));
        done_.fetch_add(1, std::memory_order_acq_rel);
        return true;
      }
    }
  }
  return false;
}

void ThreadTeam::RunOnTeam(int chunks, ChunkFunction function, void* context) {
  COPPICE_CHECK(chunks <= kMaxChunks);
  function_ = function;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  // Only the caller is certainly awake, so its share is no smaller than the others'.
  const auto part = [&](int thread) {
    return (static_cast<uint64_t>(chunks) * thread + count() - 1) / count();
  };
  for (int i = 0; i < count(); ++i) {
    shares_[i].left.store(uint64_t{epoch} << 32 | part(i) << 16 | part(i + 1),
                          std::memory_order_release);
  }
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  while (RunOneChunk(0)) {
  }
  SpinUntil([&] { return done_.load(std::memory_order_acquire) >= chunks; });
}

bool ThreadTeam::RunTask() {
  TaskState state = TaskState::kPosted;
  if (!task_state_.compare_exchange_strong(state, TaskState::kRunning, std::memory_order_acq_rel)) {
    return false;
  }
  task_();
  task_state_.store(TaskState::kNone, std::memory_order_release);
  return true;
}

void ThreadTeam::Post(std::function<void()> task) {
  if (helpers_.empty()) return task();
  Wait();
  task_ = std::move(task);
  task_state_.store(TaskState::kPosted, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_one();
}

void ThreadTeam::Wait() {
  if (RunTask()) return;
  SpinUntil([&] { return task_state_.load(std::memory_order_acquire) == TaskState::kNone; });
}

void ThreadTeam::HelperLoop(int thread) {
  using Clock = std::chrono::steady_clock;
  this_thread = thread;
  while (true) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    RunTask();
    while (RunOneChunk(thread)) {
    }
    const Clock::time_point deadline = Clock::now() + std::chrono::microseconds(kSpinMicroseconds);
    bool fresh = false, was_kept = false;
    for (int turn = 0; !(fresh = epoch_.load(std::memory_order_acquire) != seen); ++turn) {
      const bool kept = kept_awake_.load(std::memory_order_relaxed);
      if (!kept && (was_kept || Clock::now() >= deadline)) break;
      was_kept = kept;
      for (int i = 0; i < 16; ++i) Pause();
      // The next op of a pass would have arrived by now. Another process may need this core.
      if (turn >= kTurnsAlone) sched_yield();
    }
    if (!fresh) epoch_.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace coppice
