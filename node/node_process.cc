#include "node/node_process.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/flag_sources.h"
#include "base/program.h"
#include "base/root_failure.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/local_ranks.h"
#include "node/energy/node_energy.h"

ABSL_FLAG(std::string, coordinator, "",
          "tcp://host:port of the coordinator's control endpoint; not needed under one mpirun");
ABSL_FLAG(
    std::string, cluster_key_file, "",
    "file with the key of the cluster (deploy/cluster_key.sh); empty: connections are neither "
    "authenticated nor encrypted");
ABSL_FLAG(std::string, model, "", "Hugging Face folder of the model");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, dtype, "auto",
          "precision of weights and KV: auto (that of the checkpoint; on the CPU f16 becomes f32), "
          "f32, bf16, or f16 (CUDA only)");
ABSL_FLAG(std::string, tuning_cache, "auto",
          "folder that keeps which matrix products are fastest on this GPU; auto: "
          "$XDG_CACHE_HOME/coppice or ~/.cache/coppice; empty: none is measured");
ABSL_FLAG(
    std::string, weight_dtype, "auto",
    "how the CPU backend keeps the matrices of the model: auto (as --dtype says), int8 (half the "
    "memory of bf16) or int4 (a good third; embedding, head and QKV stay int8); the answers are "
    "those "
    "of the quantised model; other backends keep the type of --dtype and say so");
ABSL_FLAG(
    std::string, kernels, "best",
    "instruction set of the CPU backend: best, avx512_bf16 (rounds the input of bf16 products "
    "to bf16), avx512, avx2 or scalar");
ABSL_FLAG(int, threads, 0, "compute threads of each rank; 0 = all cores that this process may use");
ABSL_FLAG(int, max_rows, 512, "rows of one forward pass, at most");
ABSL_FLAG(int, prefill_chunk, 256, "prefill tokens of one forward pass, at most");
ABSL_FLAG(double, start_deadline, 120,
          "seconds that a starting process waits for the others of its mpirun or replica");
ABSL_FLAG(double, heartbeat_interval, 0.5,
          "seconds between heartbeats; the same as the coordinator's");

namespace coppice::node {
namespace {

constexpr double kAnyGap_s = 3600;  // counts every gap: the agent's thread looked one beat ago

constexpr int kBadFlags = 2;  // exit status

// A random number that identifies this process in the cluster. Never 0.
uint64_t ProcessId() {
  static const uint64_t id = [] {
    uint64_t random = 0;
    while (random == 0) COPPICE_CHECK(getrandom(&random, sizeof(random), 0) == sizeof(random));
    return random;
  }();
  return id;
}

// A deadline has passed: which ranks may be the reason.
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

int RunNode(const std::string& program, ProgramUsage usage, int argc, char** argv,
            const Serve& serve) {
  usage.groups.push_back({"Model and passes",
                          {"model", "dtype", "weight_dtype", "backend", "kernels", "threads",
                           "max_rows", "prefill_chunk", "tuning_cache"}});
  usage.groups.push_back(
      {"Cluster", {"coordinator", "cluster_key_file", "start_deadline", "heartbeat_interval"}});
  usage.groups.push_back({"Energy", {"energy_source", "powercap", "nvml_library"}});
  ParseProgramFlags(program, usage, argc, argv);
  InstallStopSignals();
  std::unique_ptr<comm::MpiWorld> world;
  absl::Status status = CheckNodeFlags();
  if (!status.ok()) {
    FailProgram(program, status);
    std::_Exit(kBadFlags);
  }
  if (CheckedConfig(program)) return 0;
  status = serve(world);
  if (status.ok()) return 0;
  status = NameStoppedRanks(status);
  const int exit_status = FailProgram(program, status);
  LetRootFailureBeTold(status);
  // Leaving without MPI_Finalize makes mpirun end the others too.
  std::_Exit(exit_status);
}

std::unique_ptr<StartWatch> WatchStart(const std::string& program) {
  return std::make_unique<StartWatch>(
      absl::GetFlag(FLAGS_start_deadline), [program](const std::string& reason) {
        std::_Exit(FailProgram(program, absl::DeadlineExceededError(reason)));
      });
}

absl::Status CheckNodeFlags() {
  if (absl::GetFlag(FLAGS_model).empty())
    return absl::InvalidArgumentError(absl::StrCat(FlagPlace("model"), ": not given"));
  if (absl::GetFlag(FLAGS_max_rows) < 8 || absl::GetFlag(FLAGS_prefill_chunk) < 1) {
    const bool rows = absl::GetFlag(FLAGS_max_rows) < 8;
    return absl::InvalidArgumentError(absl::StrCat(
        FlagPlace(rows ? "max_rows" : "prefill_chunk"), ": must be at least ", rows ? "8" : "1",
        ", got ", absl::GetFlag(rows ? FLAGS_max_rows : FLAGS_prefill_chunk)));
  }
  if (!(absl::GetFlag(FLAGS_start_deadline) > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagPlace("start_deadline"), ": must be more than 0 s"));
  }
  const double interval_s = absl::GetFlag(FLAGS_heartbeat_interval);
  if (!(interval_s >= 0.01 && interval_s <= 60)) {  // as the coordinator's
    return absl::InvalidArgumentError(absl::StrCat(
        FlagPlace("heartbeat_interval"), ": must be between 0.01 and 60, got ", interval_s));
  }
  return CheckEnergyFlags(absl::GetFlag(FLAGS_backend));
}

model::ModelRunnerOptions RunnerOptionsFromFlags() {
  model::ModelRunnerOptions options;
  options.dir = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.dtype = absl::GetFlag(FLAGS_dtype);
  options.weight_dtype = absl::GetFlag(FLAGS_weight_dtype);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.kernels = absl::GetFlag(FLAGS_kernels);
  options.tuning_cache = absl::GetFlag(FLAGS_tuning_cache);
  options.max_rows = absl::GetFlag(FLAGS_max_rows);
  return options;
}

absl::StatusOr<comm::ChannelOptions> ChannelOptionsFromFlags() {
  comm::ChannelOptions options;
  COPPICE_ASSIGN_OR_RETURN(options.key,
                           comm::ClusterKey::Load(absl::GetFlag(FLAGS_cluster_key_file)));
  return options;
}

void EndHungProcess(const std::string& program, const absl::Status& status) {
  std::_Exit(FailProgram(program, NameStoppedRanks(status)));
}

absl::StatusOr<std::string> FindCoordinator(absl::Span<const comm::MpiWorld::Peer> peers) {
  std::string coordinator = absl::GetFlag(FLAGS_coordinator);
  for (const comm::MpiWorld::Peer& peer : peers) {
    if (peer.role == comm::Role::kCoordinator && coordinator.empty()) coordinator = peer.endpoint;
  }
  if (!coordinator.empty()) return coordinator;
  return absl::InvalidArgumentError("--coordinator: no coordinator in this mpirun and none given");
}

proto::Register NodeRegistration(proto::NodeRole role, const std::string& id,
                                 const std::string& prefix, const model::ModelRunner& runner) {
  proto::Register registration;
  registration.set_role(role);
  registration.set_node_id(id.empty() ? absl::StrCat(prefix, getpid()) : id);
  const model::ModelConfig& config = runner.config();
  proto::ModelInfo* model = registration.mutable_model();
  model->set_path(absl::GetFlag(FLAGS_model));
  model->set_vocab_size(config.vocab_size);
  model->set_max_positions(config.max_positions);
  model->set_dtype(kernels::DTypeName(runner.dtype()));
  model->set_fingerprint(runner.fingerprint());
  for (TokenId eos : config.eos_ids) model->add_eos_ids(eos);
  registration.set_kv_blocks_total(runner.blocks()->counts().total);
  registration.set_kv_block_size(kBlockSize);
  registration.set_backend(runner.backend_description());
  registration.set_version(kVersion);
  registration.set_process_id(ProcessId());
  return registration;
}

absl::StatusOr<std::unique_ptr<comm::NodeAgent>> JoinCluster(const std::string& coordinator,
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
  options.heartbeat_interval_s = absl::GetFlag(FLAGS_heartbeat_interval);
  return comm::NodeAgent::Start(options);
}

}  // namespace coppice::node
