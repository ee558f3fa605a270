// A follower's life: block for the leader's next plan, run it, again, until told to stop.
#pragma once

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "model/model_runner.h"

namespace coppice {

// Collective with PlanLeader::Start on rank 0. Returns OK after a stop plan or a stop signal;
// otherwise why the replica must end.
absl::Status RunRankLoop(Communicator* communicator, ModelRunner* runner);

}  // namespace coppice
