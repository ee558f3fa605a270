// Communicator over one MPI communicator. Only MpiWorld::Split makes it. Sums are formed in rank
// order on every rank, so their bits depend only on the data, not on the MPI algorithm.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/communicator.h"

namespace coppice::comm {

// Takes ownership of `comm` and frees it, unless MPI has been finalized before.
std::unique_ptr<Communicator> MakeMpiCommunicator(MPI_Comm comm);

// OK, or Internal with "rank 1 of 2: MPI_Allgather: reason".
absl::Status MpiStatus(int result, const char* call, int rank, int size);

}  // namespace coppice::comm
