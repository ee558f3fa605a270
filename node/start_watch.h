// Ends a process whose start-up stands still, with a line that says where it waits and which ranks
// of this host are stopped: MPI's own calls would wait for them for ever. Made and moved on by
// worker_main and draft_main, from their main thread; a thread of its own looks at it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/step_clock.h"

namespace coppice::node {

class StartWatch {
 public:
  // When no At has come for deadline_s, calls on_standstill with the reason, on the watch's thread.
  StartWatch(double deadline_s, std::function<void(const std::string& reason)> on_standstill);
  ~StartWatch();

  void At(const std::string& what);  // what begins now, as in "waits for MPI_Init"
  void MovesOn() { clock_.MovesOn(); }
  void Over();  // start-up is over, or has a deadline of another kind from here on

 private:
  void Run();

  const double deadline_s_;
  const std::function<void(const std::string&)> on_standstill_;
  StepClock clock_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable over_changed_;
  std::string what_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace coppice::node
