// The ranks of a replica learn whether all of them could do a part of the start, so that none waits
// for one that has given up.
#pragma once

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace coppice::kernels::cuda {

// Collective. A rank that failed gets its own status back; the others get one that names it.
absl::Status Agree(comm::Communicator* communicator, const absl::Status& mine);

}  // namespace coppice::kernels::cuda
