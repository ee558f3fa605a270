#include "worker/plan_link.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "proto/convert.h"

namespace coppice::worker {

proto::RankInfo ThisRank(int rank) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  proto::RankInfo info;
  info.set_rank(rank);
  info.set_host(host);
  info.set_pid(getpid());
  return info;
}

absl::StatusOr<std::unique_ptr<PlanLeader>> PlanLeader::Start(comm::Communicator* communicator,
                                                              const std::string& listen,
                                                              double deadline_s,
                                                              const comm::ChannelOptions& channel) {
  auto leader = std::unique_ptr<PlanLeader>(new PlanLeader());
  leader->ranks_.push_back(ThisRank(0));
  const int followers = communicator->size() - 1;
  if (followers == 0) return leader;
  COPPICE_ASSIGN_OR_RETURN(leader->channel_, comm::ServerChannel::Bind(listen, channel));
  std::string endpoint = leader->channel_->endpoint();
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&endpoint));
  const SteadyClock clock;
  const double end_s = clock.NowSeconds() + deadline_s;
  proto::FollowerHello hello;
  while (static_cast<int>(leader->peers_.size()) < followers) {
    if (auto peer = leader->channel_->Receive(&hello)) {
      leader->peers_.push_back(*peer);
      proto::RankInfo& info = leader->ranks_.emplace_back();
      info.set_rank(hello.rank());
      info.set_host(hello.host());
      info.set_pid(hello.pid());
      continue;
    }
    if (StopRequested()) return absl::CancelledError("stopped while waiting for followers");
    if (clock.NowSeconds() > end_s) {
      std::vector<int> missing;
      for (int rank = 1; rank <= followers; ++rank) {
        if (std::none_of(leader->ranks_.begin(), leader->ranks_.end(),
                         [rank](const auto& info) { return info.rank() == rank; })) {
          missing.push_back(rank);
        }
      }
      return absl::DeadlineExceededError(absl::StrCat("ranks ", absl::StrJoin(missing, ", "),
                                                      " did not join within ", deadline_s, " s"));
    }
    communicator->Progress();  // the followers wait for the endpoint
    comm::Poll({leader->channel_->socket()}, 100);
  }
  std::sort(leader->ranks_.begin(), leader->ranks_.end(),
            [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  return leader;
}

PlanLeader::~PlanLeader() {
  proto::PlanMessage message;
  message.mutable_stop()->set_reason("the leader stops");
  for (const std::string& peer : peers_) channel_->Send(peer, message).IgnoreError();
}

absl::Status PlanLeader::SendToAll(const proto::PlanMessage& message) {
  for (const std::string& peer : peers_) COPPICE_RETURN_IF_ERROR(channel_->Send(peer, message));
  return absl::OkStatus();
}

absl::Status PlanLeader::Joined() {
  proto::PlanMessage message;
  message.mutable_joined();
  return SendToAll(message);
}

absl::Status PlanLeader::Send(const StepPlan& plan) {
  if (peers_.empty()) return absl::OkStatus();
  proto::PlanMessage message;
  *message.mutable_step() = proto::PlanToMessage(plan);
  return SendToAll(message);
}

uint64_t PlanLeader::bytes() const {
  return channel_ == nullptr ? 0 : channel_->counters().sent_bytes;
}

}  // namespace coppice::worker
