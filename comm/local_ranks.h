// The processes that this mpirun started on this host, as the system sees them, for messages that
// name stopped ranks. Reads /proc and does not call MPI. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coppice::comm {

struct LocalRank {
  int rank = 0;     // rank in the mpirun
  int64_t pid = 0;  // process id; never the caller's
  char state = 0;   // of /proc/PID/stat: T is stopped, t stopped by a debugger
};

// This process's rank and the number of ranks of its mpirun, known before MPI_Init. {0, 1} without
// mpirun.
struct LaunchedRank {
  int rank = 0, size = 1;
};
LaunchedRank ThisLaunchedRank();

// The other ranks, in rank order. Empty without an mpirun.
std::vector<LocalRank> OtherLocalRanks();

// "rank 1 (pid 4242) is stopped", for every stopped rank; "" when there is none.
std::string StoppedRanks();

}  // namespace coppice::comm
