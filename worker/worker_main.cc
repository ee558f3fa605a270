#include "worker/worker_main.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "base/program.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/mpi_world.h"
#include "comm/node_agent.h"
#include "model/model_host.h"
#include "worker/engine.h"
#include "worker/plan_link.h"
#include "worker/rank_loop.h"

ABSL_FLAG(std::string, coordinator, "",
          "tcp://host:port of the coordinator's control endpoint; not needed under one mpirun");
ABSL_FLAG(std::string, model, "", "Hugging Face folder of the target model");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, dtype, "auto", "weights as auto (the checkpoint's), f32 or bf16");
ABSL_FLAG(int64_t, kv_bytes, int64_t{1} << 30, "bytes of the KV pool of each rank");
ABSL_FLAG(int, threads, 0, "compute threads of each rank; 0 = all cores this process may use");
ABSL_FLAG(int, tp, 0, "ranks of one replica; 0 = all worker ranks of this mpirun are one replica");
ABSL_FLAG(int, max_rows, 512, "rows of one forward pass");
ABSL_FLAG(int, prefill_chunk, 256, "prefill tokens in one forward pass");
ABSL_FLAG(int, scratch_blocks, 4,
          "token-granular KV blocks of a sequence before private chains take whole blocks");
ABSL_FLAG(std::string, replica_id, "", "name of this replica; default replica-PID of its leader");
ABSL_FLAG(std::string, plan_listen, "tcp://127.0.0.1:*",
          "where the followers of a replica connect to its leader");
ABSL_FLAG(double, heartbeat_interval, 0.5, "seconds between heartbeats");
ABSL_FLAG(double, start_deadline, 120,
          "seconds within which all ranks of a replica must have joined");
ABSL_FLAG(double, draft_deadline_min, 0.02,
          "seconds a draft may always take before its round goes on without it");
ABSL_FLAG(double, draft_deadline_max, 2.0, "seconds a draft may take at most");
ABSL_FLAG(std::string, trace_rounds, "", "CSV file that receives the times of every round");

namespace coppice {
namespace {

constexpr char kProgram[] = "coppice-worker";

struct Place {
  std::unique_ptr<Communicator> communicator;  // of this rank's replica
  std::string coordinator;
};

// Where this process stands: its replica's communicator and the coordinator's endpoint.
absl::StatusOr<Place> FindPlace(MpiWorld* world) {
  Place place;
  place.coordinator = absl::GetFlag(FLAGS_coordinator);
  if (world == nullptr) {
    place.communicator = MakeSingleCommunicator();
  } else {
    COPPICE_ASSIGN_OR_RETURN(const auto peers, world->Exchange(Role::kWorker, ""));
    int workers = 0, before_me = 0;
    for (const auto& peer : peers) {
      if (peer.role == Role::kCoordinator && place.coordinator.empty())
        place.coordinator = peer.endpoint;
      if (peer.role != Role::kWorker) continue;
      before_me += peer.rank < world->rank();
      ++workers;
    }
    const int tp = absl::GetFlag(FLAGS_tp) > 0 ? absl::GetFlag(FLAGS_tp) : workers;
    if (workers % tp != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tp: ", workers, " worker ranks do not make replicas of ", tp));
    }
    COPPICE_ASSIGN_OR_RETURN(place.communicator, world->Split(before_me / tp));
  }
  if (place.coordinator.empty()) {
    return absl::InvalidArgumentError(
        "--coordinator: no coordinator in this mpirun and none given");
  }
  return place;
}

proto::Register Registration(const ModelHost& host, const PlanLeader& plans) {
  proto::Register registration;
  registration.set_role(proto::WORKER_LEADER);
  const std::string id = absl::GetFlag(FLAGS_replica_id);
  registration.set_node_id(id.empty() ? absl::StrCat("replica-", getpid()) : id);
  const ModelConfig& config = host.model->config();
  proto::ModelInfo* model = registration.mutable_model();
  model->set_path(absl::GetFlag(FLAGS_model));
  model->set_vocab_size(config.vocab_size);
  model->set_max_positions(config.max_positions);
  model->set_dtype(DTypeName(host.model->dtype()));
  model->set_fingerprint(host.model->fingerprint());
  model->set_bos_id(config.bos_id);
  for (TokenId eos : config.eos_ids) model->add_eos_ids(eos);
  for (const proto::RankInfo& rank : plans.ranks()) *registration.add_ranks() = rank;
  registration.set_kv_blocks_total(host.blocks->counts().total);
  registration.set_kv_block_size(kBlockSize);
  registration.set_max_rows(absl::GetFlag(FLAGS_max_rows));
  registration.set_backend(host.backend->description());
  registration.set_version(kVersion);
  return registration;
}

absl::Status Lead(const std::string& coordinator, Communicator* communicator, ModelHost* host) {
  COPPICE_ASSIGN_OR_RETURN(const auto plans,
                           PlanLeader::Start(communicator, absl::GetFlag(FLAGS_plan_listen),
                                             absl::GetFlag(FLAGS_start_deadline)));
  NodeAgentOptions agent_options;
  agent_options.coordinator = coordinator;
  agent_options.registration = Registration(*host, *plans);
  agent_options.heartbeat_interval_s = absl::GetFlag(FLAGS_heartbeat_interval);
  COPPICE_ASSIGN_OR_RETURN(const auto agent, NodeAgent::Start(agent_options));
  EngineOptions options;
  options.scheduler.kv_blocks = host->blocks->counts().total;
  options.scheduler.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.scheduler.prefill_chunk = absl::GetFlag(FLAGS_prefill_chunk);
  options.drafts.vocab_size = host->model->config().vocab_size;
  options.drafts.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.drafts.min_deadline_s = absl::GetFlag(FLAGS_draft_deadline_min);
  options.drafts.max_deadline_s = absl::GetFlag(FLAGS_draft_deadline_max);
  options.trace_rounds = absl::GetFlag(FLAGS_trace_rounds);
  return Engine(options, host, plans.get(), agent.get()).Run();
}

absl::Status Serve(std::unique_ptr<MpiWorld>& world) {
  if (absl::GetFlag(FLAGS_model).empty()) return absl::InvalidArgumentError("--model: not given");
  if (absl::GetFlag(FLAGS_max_rows) < 8 || absl::GetFlag(FLAGS_prefill_chunk) < 1) {
    return absl::InvalidArgumentError(
        "--max_rows must be at least 8 and --prefill_chunk at least 1");
  }
  if (MpiWorld::Launched()) {
    COPPICE_ASSIGN_OR_RETURN(world, MpiWorld::Init());
  }
  COPPICE_ASSIGN_OR_RETURN(const Place place, FindPlace(world.get()));
  ModelHostOptions options;
  options.dir = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.dtype = absl::GetFlag(FLAGS_dtype);
  options.kv_bytes = absl::GetFlag(FLAGS_kv_bytes);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.scratch_blocks = absl::GetFlag(FLAGS_scratch_blocks);
  COPPICE_ASSIGN_OR_RETURN(ModelHost host, LoadModelHost(options, place.communicator.get()));
  if (place.communicator->rank() > 0) {
    return RunRankLoop(absl::GetFlag(FLAGS_max_rows), place.communicator.get(), &host);
  }
  return Lead(place.coordinator, place.communicator.get(), &host);
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  ParseProgramFlags(kProgram, "One tensor-parallel rank of the target model of a Coppice cluster.",
                    argc, argv);
  InstallStopSignals();
  std::unique_ptr<MpiWorld> world;
  const absl::Status status = Serve(world);
  if (status.ok()) return 0;
  // Finalizing MPI would wait for the others; leaving without it makes mpirun end them too.
  std::_Exit(FailProgram(kProgram, status));
}

}  // namespace coppice
