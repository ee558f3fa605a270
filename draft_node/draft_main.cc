#include "draft_node/draft_main.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "base/program.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "comm/mpi_world.h"
#include "comm/node_agent.h"
#include "draft_node/draft_service.h"
#include "model/model_host.h"

ABSL_FLAG(std::string, coordinator, "",
          "tcp://host:port of the coordinator's control endpoint; not needed under one mpirun");
ABSL_FLAG(std::string, model, "", "Hugging Face folder of the draft model");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cuda");
ABSL_FLAG(std::string, dtype, "auto", "weights as auto (the checkpoint's), f32 or bf16");
ABSL_FLAG(int64_t, kv_bytes, int64_t{256} << 20, "bytes of the KV pool");
ABSL_FLAG(int, threads, 0, "compute threads; 0 = all cores this process may use");
ABSL_FLAG(int, max_rows, 512, "rows of one forward pass");
ABSL_FLAG(int, prefill_chunk, 256, "prefill tokens in one forward pass");
ABSL_FLAG(int, max_sessions, 64, "sequences drafted for at the same time");
ABSL_FLAG(std::string, node_id, "", "name of this node; default draft-PID");
ABSL_FLAG(std::string, listen, "tcp://127.0.0.1:*", "where worker leaders connect");
ABSL_FLAG(double, heartbeat_interval, 0.5, "seconds between heartbeats");

namespace coppice {
namespace {

constexpr char kProgram[] = "coppice-draft";

absl::StatusOr<std::string> FindCoordinator(MpiWorld* world, const std::string& endpoint) {
  std::string coordinator = absl::GetFlag(FLAGS_coordinator);
  if (world != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(const auto peers, world->Exchange(Role::kDraft, endpoint));
    COPPICE_RETURN_IF_ERROR(world->Split(-1).status());
    for (const auto& peer : peers) {
      if (peer.role == Role::kCoordinator && coordinator.empty()) coordinator = peer.endpoint;
    }
  }
  if (coordinator.empty()) {
    return absl::InvalidArgumentError(
        "--coordinator: no coordinator in this mpirun and none given");
  }
  return coordinator;
}

proto::Register Registration(const ModelHost& host, const std::string& endpoint) {
  proto::Register registration;
  registration.set_role(proto::DRAFT_NODE);
  const std::string node_id = absl::GetFlag(FLAGS_node_id);
  registration.set_node_id(node_id.empty() ? absl::StrCat("draft-", getpid()) : node_id);
  registration.set_draft_endpoint(endpoint);
  const ModelConfig& config = host.model->config();
  proto::ModelInfo* model = registration.mutable_model();
  model->set_path(absl::GetFlag(FLAGS_model));
  model->set_vocab_size(config.vocab_size);
  model->set_max_positions(config.max_positions);
  model->set_dtype(DTypeName(host.model->dtype()));
  model->set_fingerprint(host.model->fingerprint());
  model->set_bos_id(config.bos_id);
  for (TokenId id : config.eos_ids) model->add_eos_ids(id);
  registration.set_kv_blocks_total(host.blocks->counts().total);
  registration.set_kv_block_size(kBlockSize);
  registration.set_max_rows(absl::GetFlag(FLAGS_max_rows));
  registration.set_backend(host.backend->description());
  registration.set_version(kVersion);
  return registration;
}

absl::Status Serve(std::unique_ptr<MpiWorld>& world) {
  if (absl::GetFlag(FLAGS_model).empty()) return absl::InvalidArgumentError("--model: not given");
  if (MpiWorld::Launched()) {
    COPPICE_ASSIGN_OR_RETURN(world, MpiWorld::Init());
  }
  COPPICE_ASSIGN_OR_RETURN(const auto leaders, ServerChannel::Bind(absl::GetFlag(FLAGS_listen)));
  COPPICE_ASSIGN_OR_RETURN(const std::string coordinator,
                           FindCoordinator(world.get(), leaders->endpoint()));
  ModelHostOptions options;
  options.dir = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.dtype = absl::GetFlag(FLAGS_dtype);
  options.kv_bytes = absl::GetFlag(FLAGS_kv_bytes);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.max_rows = absl::GetFlag(FLAGS_max_rows);
  const auto single = MakeSingleCommunicator();
  COPPICE_ASSIGN_OR_RETURN(ModelHost host, LoadModelHost(options, single.get()));
  NodeAgentOptions agent_options;
  agent_options.coordinator = coordinator;
  agent_options.registration = Registration(host, leaders->endpoint());
  agent_options.heartbeat_interval_s = absl::GetFlag(FLAGS_heartbeat_interval);
  COPPICE_ASSIGN_OR_RETURN(const auto agent, NodeAgent::Start(agent_options));
  DraftServiceOptions service;
  service.max_rows = absl::GetFlag(FLAGS_max_rows);
  service.prefill_chunk = absl::GetFlag(FLAGS_prefill_chunk);
  service.max_sessions = absl::GetFlag(FLAGS_max_sessions);
  return DraftService(service, host.model.get(), host.pool.get(), host.blocks.get(), leaders.get(),
                      agent.get())
      .Run();
}

}  // namespace

int DraftMain(int argc, char** argv) {
  ParseProgramFlags(kProgram, "Grows draft forests for the workers of a Coppice cluster.", argc,
                    argv);
  InstallStopSignals();
  std::unique_ptr<MpiWorld> world;
  const absl::Status status = Serve(world);
  if (status.ok()) return 0;
  // Finalizing MPI would wait for the others; leaving without it makes mpirun end them too.
  std::_Exit(FailProgram(kProgram, status));
}

}  // namespace coppice
