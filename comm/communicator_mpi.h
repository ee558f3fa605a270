// Communicator over one MPI communicator, made by MpiWorld::Split alone. Sums are formed in rank
// order on every rank, whatever algorithm moves the data, so their bits depend on the data alone.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/communicator.h"

namespace coppice::comm {

// Takes over `comm` and frees it, unless MPI has been finalized by then.
std::unique_ptr<Communicator> MakeMpiCommunicator(MPI_Comm comm);

// OK, or Internal "rank 1 of 2: MPI_Allgather: reason".
absl::Status MpiStatus(int result, const char* call, int rank, int size);

}  // namespace coppice::comm
