#include "worker/worker_main.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/collective_counter.h"
#include "node/energy/node_energy.h"
#include "node/node_process.h"
#include "tokenizer/vocabulary.h"
#include "worker/engine.h"
#include "worker/plan_link.h"
#include "worker/rank_loop.h"

ABSL_FLAG(int64_t, kv_bytes, 0,
          "bytes of the KV pool of each rank; 0 = on a GPU what is free beside the weights, less a "
          "tenth of its memory; on a CPU 1 GiB");
ABSL_FLAG(int, tp, 0, "ranks of one replica; 0 = all worker ranks of this mpirun are one replica");
ABSL_FLAG(int, scratch_blocks, 4,
          "KV blocks of a sequence for unshared tokens, before private chains take whole blocks");
ABSL_FLAG(
    double, max_step, 0.25,
    "seconds that a step may be expected to take while several clients have requests: it gets "
    "fewer rows; 0 = no limit");
ABSL_FLAG(std::string, replica_id, "", "name of this replica; default: replica-PID of its leader");
ABSL_FLAG(std::string, plan_listen, "tcp://127.0.0.1:*",
          "where the followers of a replica connect to its leader: tcp:// (ZeroMQ) or direct://");
ABSL_FLAG(
    std::string, communicator, "auto",
    "how the ranks of a replica form sums. CPUs: shm (memory that the ranks of one host share), "
    "mpi, or auto: shm where it can be. GPUs: nccl, oneshot (our own kernels, on one host), "
    "host, shm or mpi (through host memory and the way of CPUs), or auto: nccl and oneshot by "
    "measured size, where every rank has them and a GPU of its own");
ABSL_FLAG(bool, exact, false,
          "on a GPU: the tokens of a request do not depend on what else is computed; slower. A CPU "
          "always computes so");
ABSL_FLAG(
    double, step_deadline, 30,
    "seconds that a step of a replica with several GPUs may take; after them the replica ends");
ABSL_FLAG(double, draft_deadline_min, 0.02,
          "seconds that a draft may always take before its round goes on without it");
ABSL_FLAG(double, draft_deadline_max, 2.0, "seconds that a draft may take at most");
ABSL_FLAG(std::string, trace_rounds, "", "CSV file that receives the times of every round");

namespace coppice::worker {
namespace {

// The carrier that --communicator names.
comm::Carrier CarrierFromFlags() {
  const std::string kind = absl::GetFlag(FLAGS_communicator);
  if (kind == "shm") return comm::Carrier::kShared;
  return kind == "mpi" ? comm::Carrier::kMpi : comm::Carrier::kAuto;
}

struct Place {
  std::unique_ptr<comm::CollectiveCounter> communicator;  // of this rank's replica
  std::string coordinator;
  comm::ChannelOptions channel;
  int on_host = 0;  // which of the ranks on this host it is
};

// Finds this process's place in the cluster: its replica's communicator and the coordinator's
// endpoint.
absl::StatusOr<Place> FindPlace(comm::MpiWorld* world, node::StartWatch* start) {
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
    const int tp = absl::GetFlag(FLAGS_tp) > 0 ? absl::GetFlag(FLAGS_tp) : workers;
    if (workers % tp != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tp: ", workers, " worker ranks do not make replicas of ", tp));
    }
    auto ranks = world->Split(before_me / tp, CarrierFromFlags());
    if (!ranks.ok() && CarrierFromFlags() == comm::Carrier::kShared) {
      return absl::FailedPreconditionError(
          absl::StrCat("--communicator=shm: ", ranks.status().message()));
    }
    if (!ranks.ok()) return ranks.status();
    place.communicator = std::make_unique<comm::CollectiveCounter>(*std::move(ranks));
    place.on_host = comm::MpiWorld::PlaceOnHost(peers, world->rank());
  }
  COPPICE_ASSIGN_OR_RETURN(place.coordinator, node::FindCoordinator(peers));
  return place;
}

constexpr char kProgram[] = "coppice-worker";

absl::StatusOr<kernels::CollectiveOptions> CollectivesFromFlags(const Place& place) {
  kernels::CollectiveOptions options;
  options.kind = absl::GetFlag(FLAGS_communicator);
  options.place = place.on_host;
  // Before the whole start is given up, so that this error is the one that is told.
  options.start_deadline_s = 0.75 * absl::GetFlag(FLAGS_start_deadline);
  options.step_deadline_s = absl::GetFlag(FLAGS_step_deadline);
  options.on_hang = [](const absl::Status& status) { node::EndHungProcess(kProgram, status); };
  if (options.kind != "auto" && options.kind != "nccl" && options.kind != "oneshot" &&
      options.kind != "host" && options.kind != "shm" && options.kind != "mpi") {
    return absl::InvalidArgumentError(
        absl::StrCat("--communicator must be auto, shm, mpi, nccl, oneshot or host, got \"",
                     options.kind, "\""));
  }
  if (options.kind == "shm" || options.kind == "mpi") options.kind = "host";
  if (options.step_deadline_s > 0) return options;
  return absl::InvalidArgumentError("--step_deadline: must be more than 0 s");
}

absl::Status CheckDraftDeadlines() {
  const double least = absl::GetFlag(FLAGS_draft_deadline_min);
  const double most = absl::GetFlag(FLAGS_draft_deadline_max);
  if (least >= 0 && least <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--draft_deadline_min: must be between 0 and --draft_deadline_max (", most,
                   "), got ", least));
}

proto::Register Registration(const model::ModelRunner& runner, const PlanLeader& plans) {
  proto::Register registration = node::NodeRegistration(
      proto::WORKER_LEADER, absl::GetFlag(FLAGS_replica_id), "replica-", runner);
  for (const proto::RankInfo& rank : plans.ranks()) *registration.add_ranks() = rank;
  return registration;
}

// Why a meter on the leader's host does not count all ranks. "": it does.
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

absl::Status Lead(const Place& place, model::ModelRunner* runner, node::StartWatch* start) {
  start->Over();  // the next parts have their own deadlines, which name the missing ranks
  COPPICE_ASSIGN_OR_RETURN(
      const auto plans,
      PlanLeader::Start(place.communicator.get(), absl::GetFlag(FLAGS_plan_listen),
                        absl::GetFlag(FLAGS_start_deadline), place.channel));
  COPPICE_ASSIGN_OR_RETURN(
      const auto agent,
      node::JoinCluster(place.coordinator, place.channel, Registration(*runner, *plans), runner));
  COPPICE_RETURN_IF_ERROR(plans->Joined());
  const node::NodeEnergy energy = node::StartEnergy(
      node::EnergyClaim::Claimant::kLeader, runner->pci_bus_id(), Unmeasured(*runner, *plans));
  EngineOptions options;
  options.energy = energy.meter.get();
  options.collectives = place.communicator.get();
  if (energy.meter != nullptr) options.drafts.energy_domain = energy.domain;
  options.scheduler.kv_blocks = runner->blocks()->counts().total;
  options.scheduler.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.scheduler.prefill_chunk = absl::GetFlag(FLAGS_prefill_chunk);
  options.scheduler.max_step_s = absl::GetFlag(FLAGS_max_step);
  options.drafts.channel = place.channel;
  options.drafts.vocab_size = runner->vocab_size();
  options.drafts.max_rows = absl::GetFlag(FLAGS_max_rows);
  options.drafts.min_deadline_s = absl::GetFlag(FLAGS_draft_deadline_min);
  options.drafts.max_deadline_s = absl::GetFlag(FLAGS_draft_deadline_max);
  options.vocabulary = LoadVocabulary(node::RunnerOptionsFromFlags().dir);
  options.trace_rounds = absl::GetFlag(FLAGS_trace_rounds);
  const SteadyClock clock;
  return Engine(options, runner, plans.get(), agent.get(), &clock).Run();
}

absl::Status ServeRank(std::unique_ptr<comm::MpiWorld>& world) {
  COPPICE_ASSIGN_OR_RETURN(comm::ChannelOptions channel, node::ChannelOptionsFromFlags());
  const std::unique_ptr<node::StartWatch> start = node::WatchStart(kProgram);
  if (comm::MpiWorld::Launched()) {
    start->At("waits in MPI_Init");
    COPPICE_ASSIGN_OR_RETURN(world, comm::MpiWorld::Init());
  }
  COPPICE_RETURN_IF_ERROR(CheckDraftDeadlines());
  if (!(absl::GetFlag(FLAGS_max_step) >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_step: must be at least 0, got ", absl::GetFlag(FLAGS_max_step)));
  }
  COPPICE_ASSIGN_OR_RETURN(Place place, FindPlace(world.get(), start.get()));
  place.channel = std::move(channel);
  model::ModelRunnerOptions options = node::RunnerOptionsFromFlags();
  options.kv_bytes = absl::GetFlag(FLAGS_kv_bytes);
  options.scratch_blocks = absl::GetFlag(FLAGS_scratch_blocks);
  options.exact = absl::GetFlag(FLAGS_exact);
  COPPICE_ASSIGN_OR_RETURN(options.collectives, CollectivesFromFlags(place));
  options.on_progress = [&] { start->MovesOn(); };
  start->At("loads the model with the other ranks");
  COPPICE_ASSIGN_OR_RETURN(const auto runner,
                           model::ModelRunner::Load(options, place.communicator.get()));
  if (place.communicator->rank() > 0) {
    start->At("waits for rank 0 of its replica to join the cluster");
    return RunRankLoop(
        place.communicator.get(), runner.get(), [&] { start->Over(); }, place.channel);
  }
  return Lead(place, runner.get(), start.get());
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  ProgramUsage usage = {
      "One tensor-parallel rank of the target model of a Coppice cluster.",
      {{"Replica", {"tp", "replica_id", "plan_listen", "communicator", "step_deadline", "exact"}},
       {"KV cache", {"kv_bytes", "scratch_blocks"}},
       {"Clients", {"max_step"}},
       {"Drafts", {"draft_deadline_min", "draft_deadline_max"}},
       {"Measurements", {"trace_rounds"}}}};
  usage.section = "worker";
  return node::RunNode(kProgram, usage, argc, argv, ServeRank);
}

}  // namespace coppice::worker
