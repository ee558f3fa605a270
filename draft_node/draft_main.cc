#include "draft_node/draft_main.h"

#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "base/status.h"
#include "draft_node/draft_service.h"
#include "node/energy/node_energy.h"
#include "node/node_process.h"
#include "tokenizer/vocabulary.h"

ABSL_FLAG(int64_t, kv_bytes, int64_t{256} << 20, "bytes of the KV pool");
ABSL_FLAG(int, max_sessions, 64, "sequences drafted for at the same time");
ABSL_FLAG(bool, device_forests, true,
          "let a GPU choose the levels of a forest itself, with one wait for all of them");
ABSL_FLAG(std::string, node_id, "", "name of this node; default: draft-PID");
ABSL_FLAG(std::string, listen, "direct://127.0.0.1:*",
          "where worker leaders connect: direct://host:port, or tcp://host:port to use ZeroMQ");

namespace coppice::draft_node {
namespace {

struct Place {
  std::string coordinator;
  int on_host = 0;  // which of the ranks on this host it is
};

// Collective over all ranks of this mpirun, if there is one.
absl::StatusOr<Place> FindPlace(comm::MpiWorld* world, const std::string& endpoint) {
  Place place;
  std::vector<comm::MpiWorld::Peer> peers;
  if (world != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(peers, world->Exchange(comm::Role::kDraft, endpoint));
    COPPICE_RETURN_IF_ERROR(world->Split(-1).status());
    place.on_host = comm::MpiWorld::PlaceOnHost(peers, world->rank());
  }
  COPPICE_ASSIGN_OR_RETURN(place.coordinator, node::FindCoordinator(peers));
  return place;
}

absl::Status ServeDrafts(std::unique_ptr<comm::MpiWorld>& world) {
  COPPICE_ASSIGN_OR_RETURN(const comm::ChannelOptions channel, node::ChannelOptionsFromFlags());
  const std::unique_ptr<node::StartWatch> start = node::WatchStart("coppice-draft");
  if (comm::MpiWorld::Launched()) {
    start->At("waits in MPI_Init");
    COPPICE_ASSIGN_OR_RETURN(world, comm::MpiWorld::Init());
  }
  COPPICE_ASSIGN_OR_RETURN(const auto leaders,
                           comm::ServerChannel::Bind(absl::GetFlag(FLAGS_listen), channel));
  start->At("waits for the endpoints of this mpirun");
  COPPICE_ASSIGN_OR_RETURN(const Place place, FindPlace(world.get(), leaders->endpoint()));
  start->Over();
  model::ModelRunnerOptions options = node::RunnerOptionsFromFlags();
  options.kv_bytes = absl::GetFlag(FLAGS_kv_bytes);
  options.device_forests = absl::GetFlag(FLAGS_device_forests);
  options.collectives.place = place.on_host;
  const auto single = comm::MakeSingleCommunicator();
  COPPICE_ASSIGN_OR_RETURN(const auto runner, model::ModelRunner::Load(options, single.get()));
  proto::Register registration =
      node::NodeRegistration(proto::DRAFT_NODE, absl::GetFlag(FLAGS_node_id), "draft-", *runner);
  registration.set_draft_endpoint(leaders->endpoint());
  const node::NodeEnergy energy = node::StartEnergy(node::EnergyClaim::Claimant::kDraftNode,
                                                    runner->pci_bus_id(), /*unmeasured=*/"");
  registration.set_energy_domain(energy.domain);
  COPPICE_ASSIGN_OR_RETURN(
      const auto agent, node::JoinCluster(place.coordinator, channel, registration, runner.get()));
  DraftServiceOptions service;
  service.max_rows = absl::GetFlag(FLAGS_max_rows);
  service.prefill_chunk = absl::GetFlag(FLAGS_prefill_chunk);
  service.max_sessions = absl::GetFlag(FLAGS_max_sessions);
  service.energy = energy.meter.get();
  const auto vocabulary = tokenizer::Vocabulary::Load(node::RunnerOptionsFromFlags().dir);
  if (vocabulary.ok()) service.vocabulary = *vocabulary;
  const SteadyClock clock;
  return DraftService(service, runner.get(), leaders.get(), agent.get(), &clock).Run();
}

}  // namespace

int DraftMain(int argc, char** argv) {
  ProgramUsage usage = {
      "Grows draft forests for the workers of a Coppice cluster.",
      {{"Draft node", {"node_id", "listen", "kv_bytes", "max_sessions", "device_forests"}}}};
  usage.section = "draft";
  return node::RunNode("coppice-draft", usage, argc, argv, ServeDrafts);
}

}  // namespace coppice::draft_node
