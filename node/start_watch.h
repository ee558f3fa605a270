// Ends a process whose start-up hangs, with a line that says where it waits and which ranks of this
// host are stopped. Without it, calls of MPI would wait for those ranks forever. Made and updated
// by worker_main and draft_main, from their main thread; has its own thread that watches.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/progress_watchdog.h"

namespace coppice::node {

class StartWatch {
 public:
  // If there is no progress for deadline_s, calls on_standstill with the reason, on the watch's
  // thread.
  StartWatch(double deadline_s, std::function<void(const std::string& reason)> on_standstill);
  ~StartWatch();

  void At(const std::string& what);  // the part that begins now, such as "waits for MPI_Init"
  void MovesOn() { clock_.MovesOn(); }
  void Over();  // start-up is over, or the next part has its own deadline

 private:
  void Run();

  const double deadline_s_;
  const std::function<void(const std::string&)> on_standstill_;
  ProgressWatchdog clock_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable over_changed_;
  std::string what_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace coppice::node
