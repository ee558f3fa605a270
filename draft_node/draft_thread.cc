#include "draft_node/draft_thread.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace coppice::draft_node {
namespace {

constexpr int kIdleTimeout_ms = 500;

}  // namespace

absl::StatusOr<std::unique_ptr<DraftThread>> DraftThread::Load(LoadRunner load) {
  auto draft = std::unique_ptr<DraftThread>(new DraftThread());
  std::promise<absl::Status> loaded;
  std::future<absl::Status> status = loaded.get_future();
  draft->thread_ =
      std::thread([draft = draft.get(), load = std::move(load),
                   loaded = std::move(loaded)]() mutable { draft->Run(load, std::move(loaded)); });
  COPPICE_RETURN_IF_ERROR(status.get());
  return draft;
}

DraftThread::~DraftThread() {
  if (leader_ == nullptr) {
    begin_.set_value(std::nullopt);
  } else {
    leader_->Close();
  }
  thread_.join();
}

std::unique_ptr<comm::ClientChannel> DraftThread::Serve(const DraftServiceOptions& options) {
  comm::LocalChannels channels = comm::MakeLocalChannels();
  leader_ = std::move(channels.server);
  begin_.set_value(options);
  return std::move(channels.client);
}

void DraftThread::Run(const LoadRunner& load, std::promise<absl::Status> loaded) {
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = load(single.get());
  loaded.set_value(runner.status());
  if (!runner.ok()) return;
  const std::optional<DraftServiceOptions> options = begin_.get_future().get();
  if (!options) return;
  const absl::Status status = Draft(*options, runner->get());
  leader_->Close();
  if (status.ok()) return;
  spdlog::error("the draft of this process has failed; requests go on without it: {}",
                std::string(status.message()));
}

// Until the channel is closed. An error means a failed forward pass.
absl::Status DraftThread::Draft(const DraftServiceOptions& options, model::ModelRunner* runner) {
  const SteadyClock clock;
  DraftService drafts(options, runner, leader_.get(), /*agent=*/nullptr, &clock);
  while (!leader_->closed()) COPPICE_RETURN_IF_ERROR(drafts.RunOnce(kIdleTimeout_ms));
  return absl::OkStatus();
}

}  // namespace coppice::draft_node
