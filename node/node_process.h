// What the processes of the cluster's nodes share: the flags of the model and of its passes, the
// way to the coordinator, the registration, start and end. Called by worker_main and draft_main
// alone, from their main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/mpi_world.h"
#include "comm/node_agent.h"
#include "model/model_runner.h"
#include "node/start_watch.h"
#include "proto/control.pb.h"

ABSL_DECLARE_FLAG(int, max_rows);
ABSL_DECLARE_FLAG(int, prefill_chunk);
ABSL_DECLARE_FLAG(double, start_deadline);

namespace coppice {

// Parses the flags, then serves. `serve` may fill *world; it is left open when serving fails,
// because finalizing MPI would wait for the others. Exit status: 0 clean stop, 1 cannot start or
// failed, 2 bad flags.
using Serve = std::function<absl::Status(std::unique_ptr<MpiWorld>& world)>;
int RunNode(const std::string& program, const std::string& usage, int argc, char** argv,
            const Serve& serve);

// InvalidArgument names a flag that is missing or out of range.
absl::Status CheckNodeFlags();
ModelRunnerOptions RunnerOptionsFromFlags();

// The endpoint of --coordinator, else of the coordinator among the peers of this mpirun.
absl::StatusOr<std::string> FindCoordinator(absl::Span<const MpiWorld::Peer> peers);

// id: "" = prefix and the process id. What only one kind of node has is the caller's to add.
proto::Register NodeRegistration(proto::NodeRole role, const std::string& id,
                                 const std::string& prefix, const ModelRunner& runner);
// *runner must outlive the agent. A node that the coordinator gives up ends its process, with a line
// that names the step and the ranks that are stopped.
absl::StatusOr<std::unique_ptr<NodeAgent>> JoinCluster(const std::string& coordinator,
                                                       proto::Register registration,
                                                       ModelRunner* runner);

// Ends the process when its start-up stands still for --start_deadline.
std::unique_ptr<StartWatch> WatchStart(const std::string& program);

}  // namespace coppice
