// The common part of the two kinds of node process: flags of the model and its passes, finding the
// coordinator, registration, start and exit. Called only by worker_main and draft_main, from their
// main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/program_help.h"
#include "comm/channel.h"
#include "comm/mpi_world.h"
#include "comm/node_agent.h"
#include "model/model_runner.h"
#include "node/start_watch.h"
#include "proto/control.pb.h"

ABSL_DECLARE_FLAG(int, max_rows);
ABSL_DECLARE_FLAG(int, prefill_chunk);
ABSL_DECLARE_FLAG(double, start_deadline);

namespace coppice::node {

// Parses the flags, then serves. usage has the groups of the program's own flags; those of every
// node are added. `serve` may fill *world. When serving fails, *world is not
// destroyed, because MPI_Finalize would wait for the other ranks. Exit status: 0 clean stop, 1
// cannot start or failed, 2 bad flags.
using Serve = std::function<absl::Status(std::unique_ptr<comm::MpiWorld>& world)>;
int RunNode(const std::string& program, ProgramUsage usage, int argc, char** argv,
            const Serve& serve);

// InvalidArgument names a flag that is missing or out of range.
absl::Status CheckNodeFlags();
model::ModelRunnerOptions RunnerOptionsFromFlags();

// The endpoint of --coordinator, else of the coordinator among the peers of this mpirun.
absl::StatusOr<std::string> FindCoordinator(absl::Span<const comm::MpiWorld::Peer> peers);

// With the key of --cluster_key_file. The error names the file.
absl::StatusOr<comm::ChannelOptions> ChannelOptionsFromFlags();

// id: "" = prefix and the process id. The caller adds the fields that only its kind of node has.
proto::Register NodeRegistration(proto::NodeRole role, const std::string& id,
                                 const std::string& prefix, const model::ModelRunner& runner);
// *runner must outlive the agent. When the coordinator gives the node up, the process ends with a
// line that names the step and the ranks that are stopped.
absl::StatusOr<std::unique_ptr<comm::NodeAgent>> JoinCluster(const std::string& coordinator,
                                                             const comm::ChannelOptions& channel,
                                                             proto::Register registration,
                                                             model::ModelRunner* runner);

// Ends the process at once, with a line that says why and which ranks of this host are stopped. Any
// thread.
[[noreturn]] void EndHungProcess(const std::string& program, const absl::Status& status);

// Ends the process when its start-up makes no progress for --start_deadline.
std::unique_ptr<StartWatch> WatchStart(const std::string& program);

}  // namespace coppice::node
