#include "worker/rank_loop.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/channel.h"
#include "proto/convert.h"
#include "proto/plan.pb.h"
#include "worker/plan_link.h"

namespace coppice {

absl::Status RunRankLoop(int max_rows, Communicator* communicator, ModelHost* host,
                         const std::function<void()>& on_joined) {
  std::string endpoint;
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&endpoint));
  COPPICE_ASSIGN_OR_RETURN(const auto channel, ClientChannel::Connect(endpoint));
  const proto::RankInfo self = ThisRank(communicator->rank());
  proto::FollowerHello hello;
  hello.set_rank(self.rank());
  hello.set_host(self.host());
  hello.set_pid(self.pid());
  COPPICE_RETURN_IF_ERROR(channel->Send(hello));
  const PlanLimits limits{host->pool->shape.blocks, host->model->config().vocab_size,
                          host->model->config().max_positions, max_rows};
  uint64_t step = 0;
  proto::PlanMessage message;
  while (!StopRequested()) {
    if (!channel->Receive(&message)) {
      Poll({channel->socket()}, 1000);
      continue;
    }
    if (message.has_stop()) return absl::OkStatus();
    if (message.has_joined()) {
      on_joined();
      continue;
    }
    if (!message.has_step() || message.step().step() != step + 1) {
      return absl::InternalError(absl::StrCat("rank ", self.rank(), ": plan ",
                                              message.step().step(), " after step ", step,
                                              "; the replica must end"));
    }
    ++step;
    COPPICE_ASSIGN_OR_RETURN(const ForwardBatch batch, BatchFromMessage(message.step(), limits));
    COPPICE_RETURN_IF_ERROR(host->model->Forward(batch, host->pool.get()).status());
  }
  return absl::OkStatus();
}

}  // namespace coppice
