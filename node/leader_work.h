// What rank 0 of a replica does alone at its start while the other ranks wait for it, such as
// loading a draft or a corpus. The others are told each time it has moved on, so that their start
// watches do not end a start that takes long, and do end one that stands still.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace coppice::node {

// Collective. On rank 0 calls `work` on a thread of its own and returns its status; `work` calls its
// argument, from any thread, whenever a part is done. Other ranks wait for its end and return OK,
// also if it has failed: rank 0 says why. on_progress is called on every rank's calling thread each
// time that rank 0 has moved on. Errors of the communicator are returned.
absl::Status RunOnLeader(
    comm::Communicator* ranks,
    const std::function<absl::Status(const std::function<void()>& moves_on)>& work,
    const std::function<void()>& on_progress);

}  // namespace coppice::node
