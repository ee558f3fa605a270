#include "lab/bench/coordinator/fake_replica.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "base/decoding_stats.h"
#include "proto/convert.h"

namespace coppice::bench {
namespace {

proto::Register Registration(const ReplicaOptions& options) {
  proto::Register registration;
  registration.set_role(proto::WORKER_LEADER);
  registration.set_node_id(options.name);
  registration.set_process_id(std::hash<std::string>()(options.name) | 1);
  registration.mutable_model()->set_vocab_size(options.vocab_size);
  registration.mutable_model()->set_max_positions(1 << 20);
  registration.mutable_model()->set_fingerprint(7);
  registration.mutable_model()->set_dtype("F32");
  registration.mutable_model()->set_kv_dtype("F32");
  proto::RankInfo* rank = registration.add_ranks();
  rank->set_host("fake-" + options.name);
  rank->set_pid(1);
  registration.set_kv_blocks_total(1 << 30);
  registration.set_kv_block_size(16);
  registration.set_backend("fake");
  return registration;
}

uint64_t SeedOf(const proto::StartSequence& start) {
  for (const proto::Parameter& parameter : start.decoding().parameters()) {
    if (parameter.name() == "seed") return parameter.seed();
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FakeReplica>> FakeReplica::Start(const ReplicaOptions& options,
                                                                Stamps* stamps) {
  std::unique_ptr<FakeReplica> replica(new FakeReplica(options, stamps));
  comm::NodeAgentOptions agent;
  agent.coordinator = options.coordinator;
  agent.registration = Registration(options);
  agent.heartbeat_interval_s = options.heartbeat_interval_s;
  absl::StatusOr<std::unique_ptr<comm::NodeAgent>> started = comm::NodeAgent::Start(agent);
  if (!started.ok()) return started.status();
  replica->agent_ = *std::move(started);
  replica->thread_ = std::thread([raw = replica.get()] { raw->Run(); });
  return replica;
}

FakeReplica::~FakeReplica() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void FakeReplica::Run() {
  const auto step_ns = static_cast<int64_t>(options_.step_s * 1e9);
  int64_t next_ns = NowNs() + static_cast<int64_t>(options_.phase_s * 1e9);
  while (!stop_) {
    const comm::Pollable sockets[] = {agent_->socket()};
    // A step that is late by part of a millisecond is late for its own stamps too.
    comm::Poll(sockets, static_cast<int>(std::max<int64_t>(0, next_ns - NowNs()) / 1000000));
    while (const std::optional<proto::CoordinatorMessage> message = agent_->Receive())
      OnMessage(*message);
    if (NowNs() < next_ns) continue;
    Step();
    next_ns = std::max(next_ns + step_ns, NowNs());
  }
}

void FakeReplica::OnMessage(const proto::CoordinatorMessage& message) {
  if (message.has_start()) {
    if (message.start().quiet()) return EndAtOnce(message.start().sequence_id());
    sequences_.push_back({message.start().sequence_id(), SeedOf(message.start())});
  } else if (message.has_cancel()) {
    const uint64_t id = message.cancel().sequence_id();
    const auto found = std::find_if(sequences_.begin(), sequences_.end(),
                                    [&](const Sequence& one) { return one.id == id; });
    if (found != sequences_.end()) sequences_.erase(found);
  }
  running_ = static_cast<int>(sequences_.size());
}

void FakeReplica::EndAtOnce(uint64_t id) {
  proto::NodeMessage message;
  proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
  update->set_sequence_id(id);
  update->set_index(0);
  update->add_stable_tokens(options_.tokens[0]);
  update->set_finished(true);
  proto::Hypothesis* hypothesis = update->add_hypotheses();
  hypothesis->add_tokens(options_.tokens[0]);
  hypothesis->set_stop_token(-1);
  DecodingStats stats;
  stats.method = "gumbel_coupling";
  *update->mutable_stats() = proto::StatsToMessage(stats);
  agent_->Send(message);
}

void FakeReplica::Step() {
  if (sequences_.empty()) return;
  proto::NodeMessage message;
  const int64_t now_ns = NowNs();
  for (Sequence& sequence : sequences_) {
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(sequence.id);
    update->set_index(sequence.reports++);
    for (int i = 0; i < options_.tokens_per_step; ++i, ++sequence.tokens) {
      update->add_stable_tokens(options_.tokens[sequence.tokens % options_.tokens.size()]);
      if (auto* stamp = stamps_->Of(sequence.stream, sequence.tokens)) *stamp = now_ns;
    }
  }
  agent_->Send(message);
}

}  // namespace coppice::bench
