// Threads for the host's own work between two passes: rows to verify, a message that may leave
// meanwhile. ThreadTeam (base/thread_team.h) has helpers; Serial() has none but the caller's.
// Thread-compatible: one thread calls.
#pragma once

#include <functional>

#include "absl/functional/function_ref.h"

namespace coppice {

class HostThreads {
 public:
  virtual ~HostThreads() = default;
  virtual int count() const = 0;  // >= 1, the caller's included
  // job(i) for each i in [0, jobs), in any order and at the same time, the caller's thread among
  // others; returns when all are done. Not from within a job or a task.
  virtual void RunJobs(int jobs, absl::FunctionRef<void(int)> job) = 0;
  // Starts the task on another thread, beside what the caller does next; where there is none, at
  // once. Waits for the one posted before.
  virtual void Post(std::function<void()> task) = 0;
  // Until the posted task is done; runs it here when no thread has begun with it.
  virtual void Wait() = 0;

  // While on, threads with nothing to do stay awake for the next job; once off, they sleep at once.
  virtual void KeepAwake(bool on) = 0;

  static HostThreads* Serial();  // never null
};

}  // namespace coppice
