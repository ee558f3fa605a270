// coppice-worker whose steps also sleep, BENCH_STEP_MS milliseconds each: a replica that is busy
// without a core, so that several of them on one machine show how the rest of the cluster scales
// with more replicas. The linker gives the calls of ModelRunner::WaitForHead, one a step, to this
// file (CMakeLists.txt).
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "model/model_runner.h"
#include "worker/worker_main.h"

extern "C" {
void __real__ZN7coppice5model11ModelRunner11WaitForHeadEv(coppice::model::ModelRunner* runner);
void __wrap__ZN7coppice5model11ModelRunner11WaitForHeadEv(coppice::model::ModelRunner* runner) {
  static const char* const milliseconds = std::getenv("BENCH_STEP_MS");
  COPPICE_CHECK_MSG(milliseconds != nullptr, "BENCH_STEP_MS is not set");
  static const std::chrono::duration<double, std::milli> sleep(std::atof(milliseconds));
  __real__ZN7coppice5model11ModelRunner11WaitForHeadEv(runner);
  std::this_thread::sleep_for(sleep);
}
}

int main(int argc, char** argv) { return coppice::worker::WorkerMain(argc, argv); }
