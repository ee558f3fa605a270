#include "node/node_process.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/program.h"
#include "base/root_failure.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/local_ranks.h"

namespace coppice::node {
namespace {

constexpr double kAnyGap_s = 3600;  // counts every gap: the agent's thread looked one beat ago

// A random number that identifies this process in the cluster. Never 0.
uint64_t ProcessId() {
  static const uint64_t id = [] {
    uint64_t random = 0;
    while (random == 0) COPPICE_CHECK(getrandom(&random, sizeof(random), 0) == sizeof(random));
    return random;
  }();
  return id;
}

// Names the ranks that may be the reason for a missed deadline.
absl::Status NameStoppedRanks(const absl::Status& status) {
  const std::string stopped = comm::StoppedRanks();
  if (!absl::IsDeadlineExceeded(status) || stopped.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; ", stopped));
}

absl::Status GivenUp(const std::string& id, const std::string& reason,
                     const ProgressReport& report) {
  const std::string stopped = comm::StoppedRanks();
  return absl::AbortedError(
      absl::StrCat(id, " ", reason, "; the coordinator has given it up", "; step ",
                   report.steps + 1, report.working ? " has been under way" : " has not begun",
                   absl::StrFormat(" for %.1f s", report.still_s), stopped.empty() ? "" : "; ",
                   stopped, "; the process ends"));
}

}  // namespace

int RunNode(const FlagTable& table, int argc, char** argv, const Serve& serve) {
  ParseProgramFlags(table, argc, argv);
  InstallStopSignals();
  std::unique_ptr<comm::MpiWorld> world;
  absl::Status status = serve(world);
  if (status.ok()) return 0;
  if (absl::IsCancelled(status) && StopRequested()) {  // asked for, so no error of this process
    spdlog::info(std::string(status.message()));
    std::_Exit(1);
  }
  status = NameStoppedRanks(status);
  const int exit_status = FailProgram(table.program, status);
  LetRootFailureBeTold(status);
  // Leaving without MPI_Finalize makes mpirun end the others too.
  std::_Exit(exit_status);
}

std::unique_ptr<StartWatch> WatchStart(const NodeFlags& flags, const std::string& program) {
  return std::make_unique<StartWatch>(flags.start_deadline_s, [program](const std::string& reason) {
    std::_Exit(FailProgram(program, absl::DeadlineExceededError(reason)));
  });
}

void EndHungProcess(const std::string& program, const absl::Status& status) {
  std::_Exit(FailProgram(program, NameStoppedRanks(status)));
}

absl::StatusOr<std::string> FindCoordinator(const NodeFlags& flags,
                                            absl::Span<const comm::MpiWorld::Peer> peers) {
  std::string coordinator = flags.coordinator;
  for (const comm::MpiWorld::Peer& peer : peers) {
    if (peer.role == comm::Role::kCoordinator && coordinator.empty()) coordinator = peer.endpoint;
  }
  if (!coordinator.empty()) return coordinator;
  return absl::InvalidArgumentError("--coordinator: no coordinator in this mpirun and none given");
}

KvStorage KvStorageOf(const NodeFlags& flags, const model::ModelRunner& runner) {
  return {.block_size = kBlockSize,
          .windows = runner.kv_layout().windows,
          .step_tokens = std::min(flags.prefill_chunk, flags.runner.max_rows)};
}

proto::Register NodeRegistration(const NodeFlags& flags, proto::NodeRole role,
                                 const std::string& id, const std::string& prefix,
                                 const model::ModelRunner& runner) {
  proto::Register registration;
  registration.set_role(role);
  registration.set_node_id(id.empty() ? absl::StrCat(prefix, getpid()) : id);
  const model::ModelConfig& config = runner.config();
  proto::ModelInfo* model = registration.mutable_model();
  model->set_path(flags.runner.dir);
  model->set_vocab_size(config.vocab_size);
  model->set_max_positions(config.max_positions);
  model->set_dtype(kernels::DTypeName(runner.dtype()));
  model->set_kv_dtype(kernels::DTypeName(runner.kv_dtype()));
  model->set_fingerprint(runner.fingerprint());
  for (TokenId eos : config.eos_ids) model->add_eos_ids(eos);
  registration.set_kv_blocks_total(runner.blocks()->counts().total);
  const KvStorage storage = KvStorageOf(flags, runner);
  registration.set_kv_block_size(storage.block_size);
  for (const int window : storage.windows) registration.add_kv_windows(window);
  registration.set_kv_step_tokens(storage.step_tokens);
  registration.set_backend(runner.backend_description());
  registration.set_version(kVersion);
  registration.set_process_id(ProcessId());
  return registration;
}

absl::StatusOr<std::unique_ptr<comm::NodeAgent>> JoinCluster(const NodeFlags& flags,
                                                             const std::string& coordinator,
                                                             const comm::ChannelOptions& channel,
                                                             proto::Register registration,
                                                             model::ModelRunner* runner) {
  comm::NodeAgentOptions options;
  options.steps = runner->progress_watchdog();
  const char* program =
      registration.role() == proto::WORKER_LEADER ? "coppice-worker" : "coppice-draft";
  options.on_given_up = [program, steps = runner->progress_watchdog(),
                         id = registration.node_id()](const std::string& reason) {
    std::_Exit(FailProgram(program, GivenUp(id, reason, steps->Look(kAnyGap_s))));
  };
  options.on_refused = [program](const absl::Status& refusal) {
    std::_Exit(FailProgram(program, refusal));
  };
  options.coordinator = coordinator;
  options.channel = channel;
  options.registration = std::move(registration);
  options.heartbeat_interval_s = flags.heartbeat_interval_s;
  return comm::NodeAgent::Start(options);
}

}  // namespace coppice::node
