// Makes the communicator of a replica whose ranks are all on one host: MPI finds that out and tells
// the ranks where the memory is, and carries nothing afterwards. Only MpiWorld::Split calls it.
#pragma once

#include <mpi.h>

#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"

namespace coppice::comm {

// Collective over the ranks of `comm`, which the caller still owns. Every rank gets a communicator,
// or every rank gets the reason why there is none: Unavailable.
absl::StatusOr<std::unique_ptr<Communicator>> ShareMemory(MPI_Comm comm);

}  // namespace coppice::comm
