// The processes that this mpirun started on this host, as the system sees them: for a message that
// names the rank that is stopped. Any thread; reads /proc, asks no MPI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coppice::comm {

struct LocalRank {
  int rank = 0;     // of the mpirun
  int64_t pid = 0;  // not the caller's
  char state = 0;   // of /proc/PID/stat: T is stopped, t stopped by a debugger
};

// This process's rank of its mpirun and the number of all, before MPI knows them; {0, 1} without.
struct LaunchedRank {
  int rank = 0, size = 1;
};
LaunchedRank ThisLaunchedRank();

// The others, in rank order. Empty without an mpirun.
std::vector<LocalRank> OtherLocalRanks();

// "rank 1 (pid 4242) is stopped", for all that are; "" when none is.
std::string StoppedRanks();

}  // namespace coppice::comm
