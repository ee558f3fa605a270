// A draft model in the process of its leader, on the same device: DraftService on a thread of its
// own, reached without a socket. The thread also loads the model, since the device that is current
// is a thread's own. A failure there ends the drafts of this process and nothing else. Made by
// worker/own_draft; one thread owns it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "comm/communicator.h"
#include "comm/local_channel.h"
#include "draft_node/draft_service.h"
#include "model/model_runner.h"

namespace coppice::draft_node {

class DraftThread {
 public:
  using LoadRunner =
      std::function<absl::StatusOr<std::unique_ptr<model::ModelRunner>>(comm::Communicator*)>;

  // Starts the thread, which calls `load` with a communicator of one rank. Returns when the model
  // is loaded, or the error of `load`.
  static absl::StatusOr<std::unique_ptr<DraftThread>> Load(LoadRunner load);
  // Waits for the forward pass that runs. The channel of Serve breaks.
  ~DraftThread();

  // Begins to serve; called once. Returns the leader's end of the channel, which breaks for good
  // when a forward pass fails; that is logged.
  std::unique_ptr<comm::ClientChannel> Serve(const DraftServiceOptions& options);

 private:
  DraftThread() = default;
  void Run(const LoadRunner& load, std::promise<absl::Status> loaded);
  absl::Status Draft(const DraftServiceOptions& options, model::ModelRunner* runner);

  std::promise<std::optional<DraftServiceOptions>> begin_;  // nullopt: ends without having served
  std::unique_ptr<comm::LocalServer> leader_;  // set before begin_; the thread's own but for Close
  std::thread thread_;
};

}  // namespace coppice::draft_node
