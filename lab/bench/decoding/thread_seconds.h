// The clock of these benchmarks.
#pragma once

#include <time.h>

namespace coppice::bench {

// CPU time of this thread, so that other load on the machine does not count.
inline double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace coppice::bench
