#include "base/stop_signal.h"

#include <csignal>

namespace coppice {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void OnSignal(int) { stop_requested = 1; }

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool StopRequested() { return stop_requested != 0; }

}  // namespace coppice
