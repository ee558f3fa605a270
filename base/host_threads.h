// Threads for host work between two passes, such as verifying rows or sending a message in the
// background. ThreadTeam (base/thread_team.h) has helper threads. Serial() uses only the caller's
// thread. Thread-compatible: one thread calls.
#pragma once

#include <functional>

#include "absl/functional/function_ref.h"

namespace coppice {

class HostThreads {
 public:
  virtual ~HostThreads() = default;
  virtual int count() const = 0;  // >= 1, including the caller's
  // Calls job(i) for each i in [0, jobs), in any order and in parallel, also on the caller's
  // thread. Returns when all are done. Must not be called from a job or a task.
  virtual void RunJobs(int jobs, absl::FunctionRef<void(int)> job) = 0;
  // Starts the task on another thread and returns; without another thread, runs it now. Waits for
  // the task that was posted before.
  virtual void Post(std::function<void()> task) = 0;
  // Waits until the posted task is done. Runs it here if no thread has started it.
  virtual void Wait() = 0;

  // While on, idle threads spin for the next job. When switched off they go to sleep immediately.
  virtual void KeepAwake(bool on) = 0;

  static HostThreads* Serial();  // never null
};

}  // namespace coppice
