#include "draft_node/draft_main.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "catalogue/catalogue_store.h"
#include "draft_node/draft_flags.h"
#include "draft_node/draft_service.h"
#include "model/target_states.h"
#include "node/energy/node_energy.h"
#include "node/node_process.h"
#include "tokenizer/vocabulary.h"

namespace coppice::draft_node {
namespace {

struct Place {
  std::string coordinator;
  int on_host = 0;  // index of this rank among those on this host
};

// Collective over all ranks of this mpirun, if there is one.
absl::StatusOr<Place> FindPlace(const DraftFlags& flags, comm::MpiWorld* world,
                                const std::string& endpoint) {
  Place place;
  std::vector<comm::MpiWorld::Peer> peers;
  if (world != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(peers, world->Exchange(comm::Role::kDraft, endpoint));
    COPPICE_RETURN_IF_ERROR(world->Split(-1).status());
    place.on_host = comm::MpiWorld::PlaceOnHost(peers, world->rank());
  }
  COPPICE_ASSIGN_OR_RETURN(place.coordinator, node::FindCoordinator(flags.node, peers));
  return place;
}

absl::Status ServeDrafts(const DraftFlags& flags, std::unique_ptr<comm::MpiWorld>& world) {
  COPPICE_ASSIGN_OR_RETURN(const comm::ChannelOptions channel, node::ChannelOptionsOf(flags.node));
  const std::unique_ptr<node::StartWatch> start = node::WatchStart(flags.node, kProgram);
  if (comm::MpiWorld::Launched()) {
    start->At("waits in MPI_Init");
    COPPICE_ASSIGN_OR_RETURN(world, comm::MpiWorld::Init());
  }
  COPPICE_ASSIGN_OR_RETURN(const auto leaders, comm::ServerChannel::Bind(flags.listen, channel));
  start->At("waits for the endpoints of this mpirun");
  COPPICE_ASSIGN_OR_RETURN(const Place place, FindPlace(flags, world.get(), leaders->endpoint()));
  start->Over();
  model::ModelRunnerOptions options = flags.node.runner;
  options.collectives.place = place.on_host;
  DraftServiceOptions service = flags.service;
  const auto vocabulary = tokenizer::Vocabulary::Load(flags.node.runner.dir);
  if (vocabulary.ok()) service.vocabulary = *vocabulary;
  COPPICE_ASSIGN_OR_RETURN(service.catalogues,
                           catalogue::CatalogueStore::Open(
                               flags.node.catalogues, {flags.node.runner.dir, service.vocabulary}));
  const auto single = comm::MakeSingleCommunicator();
  COPPICE_ASSIGN_OR_RETURN(const auto runner, model::ModelRunner::Load(options, single.get()));
  proto::Register registration =
      node::NodeRegistration(flags.node, proto::DRAFT_NODE, flags.node_id, "draft-", *runner);
  registration.set_draft_endpoint(leaders->endpoint());
  if (runner->config().takes_states()) {
    COPPICE_ASSIGN_OR_RETURN(const uint64_t states,
                             model::StatesFingerprint(options.dir, options.target));
    registration.set_states(states);
  } else if (!options.target.empty()) {
    spdlog::info("--target: not used, since {} takes no hidden states", options.dir);
  }
  const node::NodeEnergy energy =
      node::StartEnergy(flags.node.energy, node::EnergyClaim::Claimant::kDraftNode,
                        runner->pci_bus_id(), /*unmeasured=*/"");
  registration.set_energy_domain(energy.domain);
  COPPICE_ASSIGN_OR_RETURN(
      const auto agent,
      node::JoinCluster(flags.node, place.coordinator, channel, registration, runner.get()));
  service.max_rows = flags.node.runner.max_rows;
  service.prefill_chunk = flags.node.prefill_chunk;
  service.energy = energy.meter.get();
  const SteadyClock clock;
  return DraftService(service, runner.get(), leaders.get(), agent.get(), &clock).Run();
}

}  // namespace

int DraftMain(int argc, char** argv) {
  DraftFlags flags;
  return node::RunNode(DraftFlagTable(&flags), argc, argv,
                       [&flags](auto& world) { return ServeDrafts(flags, world); });
}

}  // namespace coppice::draft_node
