#include "worker/rank_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/channel.h"
#include "proto/convert.h"
#include "proto/plan.pb.h"
#include "worker/plan_link.h"

namespace coppice::worker {
namespace {

constexpr int kLongestWait_ms = 1000;

}  // namespace

absl::Status RunRankLoop(comm::Communicator* communicator, model::ModelRunner* runner,
                         const std::function<void()>& on_joined,
                         const comm::ChannelOptions& options) {
  std::string endpoint;
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&endpoint));
  COPPICE_ASSIGN_OR_RETURN(const auto channel, comm::ClientChannel::Connect(endpoint, options));
  const proto::RankInfo self = ThisRank(communicator->rank());
  proto::FollowerHello hello;
  hello.set_rank(self.rank());
  hello.set_host(self.host());
  hello.set_pid(self.pid());
  COPPICE_RETURN_IF_ERROR(channel->Send(hello));
  proto::PlanMessage message;
  int wait_ms = 1;
  while (!StopRequested()) {
    if (!channel->Receive(&message)) {
      // The leader may still be waiting for what this rank sent last. Mostly it leaves at once.
      communicator->Progress();
      comm::Poll({channel->socket()}, wait_ms);
      wait_ms = std::min(2 * wait_ms, kLongestWait_ms);
      continue;
    }
    wait_ms = 1;
    if (message.has_stop()) {
      spdlog::info("stopping: {}", message.stop().reason());
      return absl::OkStatus();
    }
    if (message.has_joined()) {
      on_joined();
      continue;
    }
    auto plan = proto::PlanFromMessage(message.step());
    const absl::Status run = plan.ok() ? runner->Follow(*std::move(plan)) : plan.status();
    if (run.ok()) continue;
    return absl::Status(run.code(), absl::StrCat("rank ", self.rank(), ": ", run.message()));
  }
  return absl::OkStatus();
}

}  // namespace coppice::worker
