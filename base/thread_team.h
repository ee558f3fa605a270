// The threads of one engine. Run() spreads the chunks of an op or of host work over them. The
// caller works too and never waits for a helper to wake up: a late helper just finds fewer chunks.
// Helpers spin for kSpinMicroseconds after work, so that they are awake for the next op of a pass;
// then they sleep. Chunks must write disjoint outputs, and any thread may run any chunk. Owned by
// the owner of the backend. The CPU backend computes on it, and between two passes the host does
// (HostThreads). Thread-compatible: one thread calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/host_threads.h"

namespace coppice {

class ThreadTeam final : public HostThreads {
 public:
  static constexpr int kMaxChunks = 0xffff;
  static constexpr int kSpinMicroseconds = 40;

  explicit ThreadTeam(int threads);  // >= 1, including the caller
  ~ThreadTeam() override;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int count() const override { return count_; }
  // In a chunk: which of the team's threads runs it, 0 .. count() - 1. 0 is the caller of Run.
  static int ThisThread();

  // Calls function(chunk) for each chunk in [0, chunks) and returns when all are done. Each thread
  // has a share of chunks that follow each other, and takes them in their order, so what it reads
  // is one stream; when its share is done, it takes from the end of another's. chunks <=
  // kMaxChunks.
  template <class Function>
  void Run(int chunks, Function&& function) {
    const AsCaller caller;
    if (chunks <= 1 || helpers_.empty()) {
      for (int chunk = 0; chunk < chunks; ++chunk) function(chunk);
      return;
    }
    using Plain = std::remove_reference_t<Function>;
    RunOnTeam(
        chunks, [](void* context, int chunk) { (*static_cast<Plain*>(context))(chunk); },
        const_cast<void*>(static_cast<const void*>(&function)));
  }

  void RunJobs(int jobs, absl::FunctionRef<void(int)> job) override { Run(jobs, job); }
  void Post(std::function<void()> task) override;
  void Wait() override;
  void KeepAwake(bool on) override { kept_awake_.store(on, std::memory_order_relaxed); }

 private:
  // The caller may be a thread of another team. Outside this scope it has its number in that team.
  class AsCaller {
   public:
    AsCaller();
    ~AsCaller();
    AsCaller(const AsCaller&) = delete;
    AsCaller& operator=(const AsCaller&) = delete;

   private:
    const int before_;
  };
  enum class TaskState { kNone, kPosted, kRunning };
  using ChunkFunction = void (*)(void* context, int chunk);
  void RunOnTeam(int chunks, ChunkFunction function, void* context);
  bool RunOneChunk(int thread);  // false if no chunk is left
  bool RunTask();                // false if no task is posted
  void HelperLoop(int thread);

  // Chunks of a job that no thread has taken: the number of the job (32 bits), the first chunk (16)
  // and the end of the chunks (16). Taken by compare-and-swap, so a late helper cannot take from a
  // finished job.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
  };

  const int count_;
  std::vector<std::thread> helpers_;
  // Valid from the publication of a job until all its chunks are done.
  ChunkFunction function_ = nullptr;
  void* context_ = nullptr;
  const std::unique_ptr<Share[]> shares_;  // [threads]; the caller's is the first
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // helpers sleep on it
  std::atomic<bool> stopping_{false};
  std::atomic<bool> kept_awake_{false};
  std::function<void()> task_;  // belongs to the thread that set task_state_ to kRunning
  std::atomic<TaskState> task_state_{TaskState::kNone};
};

// Cores that this process may run on.
int AvailableCores();

}  // namespace coppice
