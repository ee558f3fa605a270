// The common part of the two kinds of node process: finding the coordinator, registration, start
// and exit. Called only by worker_main and draft_main, from their main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/flag_table.h"
#include "comm/channel.h"
#include "comm/mpi_world.h"
#include "comm/node_agent.h"
#include "model/model_runner.h"
#include "node/node_flags.h"
#include "node/start_watch.h"
#include "plan/kv_storage.h"
#include "proto/control.pb.h"

namespace coppice::node {

// Parses the flags, then serves. `serve` may fill *world. When serving fails, *world is not
// destroyed, because MPI_Finalize would wait for the other ranks. Exit status: 0 clean stop, 1
// cannot start, failed, or stopped before it served (a log line, not an error), 2 bad flags.
using Serve = std::function<absl::Status(std::unique_ptr<comm::MpiWorld>& world)>;
int RunNode(const FlagTable& table, int argc, char** argv, const Serve& serve);

// The endpoint of --coordinator, else of the coordinator among the peers of this mpirun.
absl::StatusOr<std::string> FindCoordinator(const NodeFlags& flags,
                                            absl::Span<const comm::MpiWorld::Peer> peers);

KvStorage KvStorageOf(const NodeFlags& flags, const model::ModelRunner& runner);
// id: "" = prefix and the process id. The caller adds the fields that only its kind of node has.
proto::Register NodeRegistration(const NodeFlags& flags, proto::NodeRole role,
                                 const std::string& id, const std::string& prefix,
                                 const model::ModelRunner& runner);
// *runner must outlive the agent. When the coordinator gives the node up, the process ends with a
// line that names the step and the ranks that are stopped.
absl::StatusOr<std::unique_ptr<comm::NodeAgent>> JoinCluster(const NodeFlags& flags,
                                                             const std::string& coordinator,
                                                             const comm::ChannelOptions& channel,
                                                             proto::Register registration,
                                                             model::ModelRunner* runner);

// Ends the process at once, with a line that says why and which ranks of this host are stopped. Any
// thread.
[[noreturn]] void EndHungProcess(const std::string& program, const absl::Status& status);

// Ends the process when its start-up makes no progress for --start_deadline.
std::unique_ptr<StartWatch> WatchStart(const NodeFlags& flags, const std::string& program);

}  // namespace coppice::node
