#include "worker/worker_main.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "catalogue/catalogue_store.h"
#include "comm/collective_counter.h"
#include "model/target_states.h"
#include "node/energy/node_energy.h"
#include "node/node_process.h"
#include "tokenizer/vocabulary.h"
#include "worker/engine.h"
#include "worker/model_check.h"
#include "worker/own_draft.h"
#include "worker/plan_link.h"
#include "worker/rank_loop.h"
#include "worker/row_states.h"
#include "worker/suffix_corpus_file.h"
#include "worker/worker_flags.h"

namespace coppice::worker {
namespace {

// The carrier that --communicator names.
comm::Carrier CarrierOf(const WorkerFlags& flags) {
  const std::string& kind = flags.node.runner.collectives.kind;
  if (kind == "shm") return comm::Carrier::kShared;
  return kind == "mpi" ? comm::Carrier::kMpi : comm::Carrier::kAuto;
}

struct Place {
  std::unique_ptr<comm::CollectiveCounter> communicator;  // communicator of this rank's replica
  std::string coordinator;
  comm::ChannelOptions channel;
  int on_host = 0;  // index of this rank among those on this host
};

// Finds this process's place in the cluster: its replica's communicator and the coordinator's
// endpoint.
absl::StatusOr<Place> FindPlace(const WorkerFlags& flags, comm::MpiWorld* world,
                                node::StartWatch* start) {
  Place place;
  std::vector<comm::MpiWorld::Peer> peers;
  if (world == nullptr) {
    place.communicator = std::make_unique<comm::CollectiveCounter>(comm::MakeSingleCommunicator());
  } else {
    start->At("waits for the endpoints of this mpirun");
    COPPICE_ASSIGN_OR_RETURN(peers, world->Exchange(comm::Role::kWorker, ""));
    int workers = 0, before_me = 0;
    for (const auto& peer : peers) {
      if (peer.role != comm::Role::kWorker) continue;
      before_me += peer.rank < world->rank();
      ++workers;
    }
    const int tp = flags.tp > 0 ? flags.tp : workers;
    if (workers % tp != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tp: ", workers, " worker ranks do not make replicas of ", tp));
    }
    auto ranks = world->Split(before_me / tp, CarrierOf(flags));
    if (!ranks.ok() && CarrierOf(flags) == comm::Carrier::kShared) {
      return absl::FailedPreconditionError(
          absl::StrCat("--communicator=shm: ", ranks.status().message()));
    }
    if (!ranks.ok()) return ranks.status();
    place.communicator = std::make_unique<comm::CollectiveCounter>(*std::move(ranks));
    place.on_host = comm::MpiWorld::PlaceOnHost(peers, world->rank());
  }
  COPPICE_ASSIGN_OR_RETURN(place.coordinator, node::FindCoordinator(flags.node, peers));
  return place;
}

kernels::CollectiveOptions CollectivesOf(const WorkerFlags& flags, const Place& place) {
  kernels::CollectiveOptions options = flags.node.runner.collectives;
  options.place = place.on_host;
  // A shorter deadline than that of the whole start, so that this error is the one reported.
  options.start_deadline_s = 0.75 * flags.node.start_deadline_s;
  options.on_hang = [](const absl::Status& status) { node::EndHungProcess(kProgram, status); };
  if (options.kind == "shm" || options.kind == "mpi") options.kind = "host";
  return options;
}

proto::Register Registration(const WorkerFlags& flags, const model::ModelRunner& runner,
                             const PlanLeader& plans) {
  proto::Register registration = node::NodeRegistration(flags.node, proto::WORKER_LEADER,
                                                        flags.replica_id, "replica-", runner);
  registration.set_max_rows(flags.node.runner.max_rows);
  for (const proto::RankInfo& rank : plans.ranks()) *registration.add_ranks() = rank;
  return registration;
}

// Why a meter on the leader's host does not count all ranks. "": it counts all.
std::string Unmeasured(const model::ModelRunner& runner, const PlanLeader& plans) {
  const auto& ranks = plans.ranks();
  if (ranks.size() > 1 && !runner.pci_bus_id().empty())
    return "the replica computes on several GPUs, and its leader reads one";
  for (const proto::RankInfo& rank : ranks) {
    if (rank.host() != ranks.front().host()) {
      return absl::StrCat("the replica has ranks on several hosts (", ranks.front().host(), ", ",
                          rank.host(), "), and its leader reads its own");
    }
  }
  return "";
}

// nullptr: the model's folder has no tokenizer that can be read.
std::shared_ptr<const tokenizer::Vocabulary> LoadVocabulary(const std::string& folder) {
  const auto vocabulary = tokenizer::Vocabulary::Load(folder);
  if (vocabulary.ok()) return *vocabulary;
  spdlog::warn("stop strings and formats are refused: {}", vocabulary.status().ToString());
  return nullptr;
}

// It keeps to formats by the target's vocabulary, which is its own, and counts no energy: the
// replica's figure has it.
draft_node::DraftServiceOptions OwnDraftService(const WorkerFlags& flags,
                                                const EngineOptions& engine) {
  draft_node::DraftServiceOptions options;
  options.max_rows = flags.node.runner.max_rows;
  options.prefill_chunk = flags.node.prefill_chunk;
  options.max_sessions = flags.draft.max_sessions;
  options.vocabulary = engine.vocabulary;
  options.catalogues = engine.catalogues;
  return options;
}

absl::Status Lead(const WorkerFlags& flags, const Place& place, const StatesDraft& states_draft,
                  draft_node::DraftThread* draft, model::ModelRunner* runner,
                  node::StartWatch* start) {
  start->Over();  // the next parts have their own deadlines, which name the missing ranks
  EngineOptions options = flags.engine;
  options.vocabulary = LoadVocabulary(flags.node.runner.dir);
  COPPICE_ASSIGN_OR_RETURN(options.catalogues,
                           catalogue::CatalogueStore::Open(
                               flags.node.catalogues, {flags.node.runner.dir, options.vocabulary}));
  if (options.suffixes.on && draft == nullptr) {  // else there are none
    COPPICE_ASSIGN_OR_RETURN(
        options.suffixes.corpus,
        LoadSuffixCorpus(flags.suffix_corpus, flags.node.runner.dir, runner->vocab_size()));
  }
  COPPICE_ASSIGN_OR_RETURN(const auto plans,
                           PlanLeader::Start(place.communicator.get(), flags.plan_listen,
                                             flags.node.start_deadline_s, place.channel));
  const proto::Register registration = Registration(flags, *runner, *plans);
  COPPICE_ASSIGN_OR_RETURN(
      const auto agent,
      node::JoinCluster(flags.node, place.coordinator, place.channel, registration, runner));
  COPPICE_RETURN_IF_ERROR(plans->Joined());
  const node::NodeEnergy energy =
      node::StartEnergy(flags.node.energy, node::EnergyClaim::Claimant::kLeader,
                        runner->pci_bus_id(), Unmeasured(*runner, *plans));
  options.energy = energy.meter.get();
  options.collectives = place.communicator.get();
  options.row_costs = runner->row_costs();
  if (energy.meter != nullptr) options.drafts.energy_domain = energy.domain;
  options.scheduler.kv_blocks = runner->blocks()->counts().total;
  options.scheduler.kv_storage = node::KvStorageOf(flags.node, *runner);
  options.scheduler.max_rows = options.drafts.max_rows = flags.node.runner.max_rows;
  options.scheduler.prefill_chunk = flags.node.prefill_chunk;
  options.drafts.channel = place.channel;
  options.drafts.order_seed = registration.process_id();
  options.drafts.vocab_size = runner->vocab_size();
  PoolStates states(runner);
  if (!states_draft.dir.empty()) {
    options.drafts.states = &states;
    COPPICE_ASSIGN_OR_RETURN(options.drafts.states_fingerprint,
                             model::StatesFingerprint(states_draft.dir, flags.node.runner.dir));
  }
  const SteadyClock clock;
  Engine engine(options, runner, plans.get(), agent.get(), &clock);
  if (draft != nullptr) {
    engine.UseOwnDraft(draft->Serve(OwnDraftService(flags, options)), states_draft.own);
  }
  return engine.Run();
}

absl::Status ServeRank(const WorkerFlags& flags, std::unique_ptr<comm::MpiWorld>& world) {
  if (flags.check) {
    CheckedUse use = flags.checked;
    if (use.draft.empty()) use.draft = flags.draft.dir;
    if (use.draft.empty()) use.draft = flags.node.runner.states_for;
    COPPICE_ASSIGN_OR_RETURN(const std::string lines,
                             CheckModel(flags.node.runner, std::max(1, flags.tp), use));
    std::printf("%s\n", lines.c_str());
    return absl::OkStatus();
  }
  COPPICE_RETURN_IF_ERROR(CheckTarget(flags.node.runner.dir));
  COPPICE_ASSIGN_OR_RETURN(const StatesDraft states_draft, StatesDraftOf(flags));
  COPPICE_ASSIGN_OR_RETURN(comm::ChannelOptions channel, node::ChannelOptionsOf(flags.node));
  const std::unique_ptr<node::StartWatch> start = node::WatchStart(flags.node, kProgram);
  if (comm::MpiWorld::Launched()) {
    start->At("waits in MPI_Init");
    COPPICE_ASSIGN_OR_RETURN(world, comm::MpiWorld::Init());
  }
  COPPICE_ASSIGN_OR_RETURN(Place place, FindPlace(flags, world.get(), start.get()));
  place.channel = std::move(channel);
  model::ModelRunnerOptions options = flags.node.runner;
  options.states_for = states_draft.dir;
  options.collectives = CollectivesOf(flags, place);
  options.on_progress = [&] { start->MovesOn(); };
  std::unique_ptr<draft_node::DraftThread> draft;
  if (place.communicator->rank() == 0) {
    start->At("loads the model of --draft");
    COPPICE_ASSIGN_OR_RETURN(draft, LoadOwnDraft(flags, place.on_host, options.on_progress));
  }
  start->At("loads the model with the other ranks");
  COPPICE_ASSIGN_OR_RETURN(const auto runner,
                           model::ModelRunner::Load(options, place.communicator.get()));
  if (place.communicator->rank() > 0) {
    start->At("waits for rank 0 of its replica to join the cluster");
    return RunRankLoop(
        place.communicator.get(), runner.get(), [&] { start->Over(); }, place.channel);
  }
  return Lead(flags, place, states_draft, draft.get(), runner.get(), start.get());
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  WorkerFlags flags;
  return node::RunNode(WorkerFlagTable(&flags), argc, argv,
                       [&flags](auto& world) { return ServeRank(flags, world); });
}

}  // namespace coppice::worker
