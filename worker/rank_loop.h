// A follower's loop: waits for the leader's next plan and runs it, until told to stop.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "comm/channel.h"
#include "comm/communicator.h"
#include "model/model_runner.h"

namespace coppice::worker {

// Collective with PlanLeader::Start on rank 0. Returns OK after a stop plan or a stop signal.
// Otherwise the error says why the replica must end. on_joined is called when the replica has
// joined the cluster.
absl::Status RunRankLoop(comm::Communicator* communicator, model::ModelRunner* runner,
                         const std::function<void()>& on_joined,
                         const comm::ChannelOptions& options);

}  // namespace coppice::worker
