// Sends the plan of every step from a replica's leader to its followers, over ZeroMQ, so that an
// idle follower blocks on a socket instead of spinning in a collective. Steps are numbered: a gap
// or a repeat ends the replica with an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "comm/communicator.h"
#include "model/model_runner.h"
#include "proto/control.pb.h"
#include "proto/plan.pb.h"

namespace coppice::worker {

class PlanLeader : public model::PlanSender {
 public:
  // Collective with RunRankLoop on the other ranks. Waits for all of them;
  // DeadlineExceeded names the missing ranks.
  static absl::StatusOr<std::unique_ptr<PlanLeader>> Start(comm::Communicator* communicator,
                                                           const std::string& listen,
                                                           double deadline_s,
                                                           const comm::ChannelOptions& channel);
  ~PlanLeader() override;  // tells the followers to stop
  // Tells the followers that the replica has joined the cluster.
  absl::Status Joined();
  absl::Status Send(const StepPlan& plan) override;
  uint64_t bytes() const;
  // All ranks, the leader first.
  const std::vector<proto::RankInfo>& ranks() const { return ranks_; }

 private:
  PlanLeader() = default;
  absl::Status SendToAll(const proto::PlanMessage& message);
  std::unique_ptr<comm::ServerChannel> channel_;  // nullptr with one rank
  std::vector<std::string> peers_;
  std::vector<proto::RankInfo> ranks_;
};

proto::RankInfo ThisRank(int rank);

}  // namespace coppice::worker
