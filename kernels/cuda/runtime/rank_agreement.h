// The ranks of a replica learn whether all of them could do something, so that none waits for one
// that has given up.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"

namespace coppice::kernels::cuda {

// Collective: the ranks whose status is an error.
absl::StatusOr<std::vector<int>> FailedRanks(comm::Communicator* communicator,
                                             const absl::Status& mine);

// The same for a part of the start. A rank that failed gets its own status back; the others get one
// that names it.
absl::Status Agree(comm::Communicator* communicator, const absl::Status& mine);

}  // namespace coppice::kernels::cuda
