#include "worker/draft_client.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "proto/convert.h"

namespace coppice::worker {
namespace {

constexpr double kRetryRefusedAfter_s = 1.0;
constexpr double kDepthGain = 0.05;
constexpr size_t kFewTokens = 32;  // tokens; about the most that a round with a draft decides

// The place of a node among those of which nothing is known.
uint64_t OrderOf(uint64_t seed, const std::string& node_id) {
  if (seed == 0) return 0;
  uint64_t hash = seed;
  for (const char c : node_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash ^ hash >> 32;
}

}  // namespace

const char* NoDraftReasonName(NoDraftReason reason) {
  switch (reason) {
    case NoDraftReason::kNone:
      return "none";
    case NoDraftReason::kLate:
      return "late";
    case NoDraftReason::kDead:
      return "dead";
    case NoDraftReason::kRefused:
      return "refused";
    case NoDraftReason::kMismatch:
      return "mismatch";
    case NoDraftReason::kNoNode:
      return "no_node";
    case NoDraftReason::kReading:
      return "reading";
    case NoDraftReason::kNoStates:
      return "no_states";
  }
  return "none";
}

const char* DraftMoveName(DraftMove reason) {
  switch (reason) {
    case DraftMove::kSlow:
      return "slow";
    case DraftMove::kLate:
      return "late";
    case DraftMove::kGone:
      return "gone";
    case DraftMove::kRefused:
      return "refused";
  }
  return "slow";
}

const char* DroppedDraftName(DroppedDraft reason) {
  switch (reason) {
    case DroppedDraft::kNoSession:
      return "no_session";
    case DroppedDraft::kOtherNode:
      return "other_node";
    case DroppedDraft::kOtherRound:
      return "other_round";
    case DroppedDraft::kGivenUp:
      return "given_up";
  }
  return "no_session";
}

absl::Status CheckForest(const decoding::DraftForest& forest, const AskedForest& limits) {
  const auto refuse = [](absl::string_view field, int got, int asked) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft forest: ", field, " ", got, ", asked for ", asked));
  };
  if (forest.num_roots != limits.roots) return refuse("num_roots", forest.num_roots, limits.roots);
  if (forest.depth() > limits.depth) return refuse("depth", forest.depth(), limits.depth);
  if (forest.size() > limits.nodes) return refuse("nodes", forest.size(), limits.nodes);
  const int draws = static_cast<int>(forest.draws.size());
  if (draws > limits.nodes) return refuse("draws", draws, limits.nodes);
  for (const decoding::Proposal& proposal : forest.proposals) {
    const int entries = static_cast<int>(proposal.row.size());
    if (entries <= limits.support) continue;
    return refuse(absl::StrCat("proposals: entries of node ", proposal.place.code()), entries,
                  limits.support);
  }
  const bool checked = limits.method != nullptr && limits.method->check_forest != nullptr;
  return checked && forest.size() > 0 ? limits.method->check_forest(forest) : absl::OkStatus();
}

DraftClient::DraftClient(const DraftClientOptions& options) : options_(options) {}
DraftClient::~DraftClient() = default;

void DraftClient::SetNodes(const proto::DraftNodes& message) {
  const std::vector<proto::DraftNode> usable = Usable(message);
  configured_ = configured_ || !usable.empty();
  std::map<std::string, proto::DraftNode> wanted;
  for (const proto::DraftNode& node : usable) wanted[node.node_id()] = node;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    if (it->second.own) {
      wanted.erase(it->first);
      ++it;
      continue;
    }
    const auto found = wanted.find(it->first);
    const bool takes_states = found != wanted.end() && found->second.states() != 0;
    if (found != wanted.end() && found->second.endpoint() == it->second.endpoint &&
        takes_states == it->second.takes_states) {
      wanted.erase(found);
      ++it;
      continue;
    }
    spdlog::warn("draft node {} is gone", it->first);
    LoseSessions(&it->second);
    bytes_before_ += BytesOf(it->second);
    it = nodes_.erase(it);
  }
  for (const auto& [id, entry] : wanted) {
    auto channel = comm::ClientChannel::Connect(entry.endpoint(), options_.channel);
    if (!channel.ok()) {
      spdlog::warn("draft node {}: {}", id, std::string(channel.status().message()));
      continue;
    }
    spdlog::info("draft node {} at {}", id, entry.endpoint());
    Node& node = nodes_[id];
    node.id = id;
    node.measures = options_.energy_domain != 0 && entry.energy_domain() != options_.energy_domain;
    node.takes_states = entry.states() != 0;
    node.endpoint = entry.endpoint();
    node.order = OrderOf(options_.order_seed, id);
    node.channel = *std::move(channel);
  }
}

void DraftClient::AddOwn(std::unique_ptr<comm::ClientChannel> channel, bool takes_states) {
  Node& node = nodes_[kOwnDraft];
  node.id = kOwnDraft;
  node.endpoint = channel->endpoint();
  node.order = OrderOf(options_.order_seed, node.id);
  node.channel = std::move(channel);
  node.own = true;
  node.takes_states = takes_states;
  configured_ = true;
}

void DraftClient::TakeEnergy(const Node& node, const proto::DraftReply& reply, Session* session) {
  if (node.measures) session->energy.Add(proto::DraftEnergy(reply));
}

std::optional<double> DraftClient::EnergyOf(uint64_t sequence_id, bool at_the_end) const {
  const auto found = sessions_.find(sequence_id);
  if (found == sessions_.end()) return 0;
  if (at_the_end && found->second.owes_energy) return std::nullopt;
  return found->second.energy.total();
}

double DraftClient::Patience(const Node& node, const Session& session) const {
  if (!session.warm || node.mean_reply_s == 0) return options_.max_deadline_s;
  return std::clamp(options_.deadline_factor * node.mean_reply_s, options_.min_deadline_s,
                    options_.max_deadline_s);
}

NoDraftReason DraftClient::Ask(const Sequence& sequence, int width, int depth, double now_s,
                               double* deadline_s) {
  Session& session = sessions_[sequence.id];
  Node* node = nullptr;
  if (const NoDraftReason why = FindNode(sequence, now_s, &session, &node);
      why != NoDraftReason::kNone)
    return why;
  MoveIfFaster(sequence, now_s, &session);
  decoding::DraftRequest request =
      decoding::MakeDraftRequest(*sequence.decoder, width, depth, session.stable_sent);
  request.session_id = session.wire_id;
  request.round = sequence.round;
  if (node->takes_states) {
    const NoDraftReason why = AddStates(node, sequence, &session, &request);
    if (why != NoDraftReason::kNone) return why;
  }
  proto::DraftCommand command;
  *command.mutable_draft() = proto::DraftRequestToMessage(request);
  if (!node->channel->Send(command).ok()) {
    MarkLate(node, now_s);
    Drop(&session);
    session.lost = DraftMove::kGone;
    return NoDraftReason::kDead;
  }
  state_bytes_ += sizeof(uint16_t) * request.states.values.size();
  session.tokens_sent = request.stable_tokens.size();
  session.stable_sent = request.stable_length;
  session.asked_round = sequence.round;
  session.asked = {sequence.params.method, static_cast<int>(sequence.decoder->roots().size()),
                   depth, sequence.draft.Nodes(width, depth),
                   std::max(1, sequence.params.draft_top_k)};
  session.asked_s = now_s;
  mean_depth_ += kDepthGain * (depth - mean_depth_);
  session.waiting = true;
  session.owes_energy = node->measures;
  *deadline_s = now_s + Patience(*node, session);
  return NoDraftReason::kNone;
}

void DraftClient::Announce(absl::Span<const uint64_t> sequence_ids) {
  proto::DraftCommand command;
  command.mutable_announce();
  std::vector<Node*> told;
  for (const uint64_t id : sequence_ids) {
    const auto session = sessions_.find(id);
    Node* node = session == sessions_.end() ? nullptr : NodeOf(session->second);
    if (node == nullptr || std::find(told.begin(), told.end(), node) != told.end()) continue;
    told.push_back(node);
    node->channel->Send(command).IgnoreError();  // the request that follows reports the error
  }
}

void DraftClient::GaveUp(uint64_t sequence_id, double now_s) {
  const auto found = sessions_.find(sequence_id);
  if (found == sessions_.end()) return;
  found->second.waiting = false;
  if (Node* node = NodeOf(found->second); node != nullptr) MarkLate(node, now_s);
}

void DraftClient::Withdraw(uint64_t sequence_id) {
  const auto found = sessions_.find(sequence_id);
  if (found != sessions_.end()) found->second.waiting = false;
}

void DraftClient::Drop(const Node& node, const proto::DraftReply& reply, DroppedDraft why,
                       const Session* session) {
  ++dropped_[why];
  LogFields(spdlog::level::debug, absl::StrCat("draft node ", node.id, ": a draft is dropped"),
            {{"reason", DroppedDraftName(why)},
             {"session", absl::StrCat(reply.session_id())},
             {"round", static_cast<int64_t>(reply.round())},
             {"asked_round", static_cast<int64_t>(session == nullptr ? 0 : session->asked_round)},
             {"trace_id", TextOrNone(session == nullptr ? "" : session->trace_id)}});
}

void DraftClient::TakeLoad(Node* node, const proto::DraftReply& reply) {
  if (reply.sessions() > 0) node->estimate.RecordSessions(reply.sessions(), node->sessions);
}

// From the node to which the session moves.
void DraftClient::TakeOfMove(Node* node, const proto::DraftReply& reply, double now_s,
                             Session* session) {
  TakeEnergy(*node, reply, session);
  Moving& moving = session->moving;
  if (!reply.error().empty()) {
    LogFields(spdlog::level::debug, absl::StrCat("draft node ", node->id, ": ", reply.error()),
              {{"trace_id", TextOrNone(session->trace_id)}});
    node->unsteady_until_s = now_s + kRetryRefusedAfter_s;
    --node->sessions;
    AbandonMove(session, /*tell_node=*/false);
  } else if (reply.prefilled() && !std::exchange(moving.read, true)) {
    node->estimate.RecordReading(moving.tokens, now_s - moving.begun_s);
  }
}

void DraftClient::Take(Node* node, const proto::DraftReply& reply, double now_s, double unseen_s,
                       std::vector<DraftArrival>* out) {
  node->late = false;
  TakeLoad(node, reply);
  const auto wire = sequence_of_wire_.find(reply.session_id());
  if (wire == sequence_of_wire_.end()) {
    const bool draft = !reply.prefilled() && reply.error().empty();
    return draft ? Drop(*node, reply, DroppedDraft::kNoSession, nullptr) : void();
  }
  const uint64_t sequence_id = wire->second;
  Session& session = sessions_.at(sequence_id);
  if (session.moving.wire_id == reply.session_id() && session.moving.node == node->id)
    return TakeOfMove(node, reply, now_s, &session);
  if (session.node != node->id || session.wire_id != reply.session_id()) {
    spdlog::warn("draft node {}: it answers for a session of {}; dropped", node->id, session.node);
    return Drop(*node, reply, DroppedDraft::kOtherNode, &session);
  }
  TakeEnergy(*node, reply, &session);
  if (reply.prefilled()) {
    // A draft that takes states reads a prompt as the target does.
    if (!std::exchange(session.prefilled, true) && !node->takes_states)
      node->estimate.RecordReading(session.tokens_opened, now_s - session.opened_s);
    if (session.asked_round == 0) session.owes_energy = false;
    return;
  }
  if (!reply.error().empty()) {
    LogFields(spdlog::level::warn, absl::StrCat("draft node ", node->id, ": ", reply.error()),
              {{"trace_id", TextOrNone(session.trace_id)}});
    if (session.waiting) out->push_back(DraftArrival::Failed(sequence_id, NoDraftReason::kRefused));
    --node->sessions;
    sequence_of_wire_.erase(wire);
    session.owes_energy = false;
    AbandonMove(&session, /*tell_node=*/true);
    Forget(&session);
    session.lost = DraftMove::kRefused;
    session.avoids = node->id;
    session.refused_until_s = now_s + kRetryRefusedAfter_s;
    return;
  }
  if (reply.round() != session.asked_round)  // most likely an earlier round
    return Drop(*node, reply, DroppedDraft::kOtherRound, &session);
  session.owes_energy = false;
  session.states.Answered();
  const double reply_s = now_s - session.asked_s;
  const bool caught_up = session.warm && session.tokens_sent <= kFewTokens;
  if (session.warm) {
    node->mean_reply_s =
        node->mean_reply_s == 0 ? reply_s : 0.8 * node->mean_reply_s + 0.2 * reply_s;
  }
  if (caught_up && session.waiting && proto::CheckDraftTimes(reply).ok()) {
    node->estimate.RecordReply({session.asked.depth, reply_s, unseen_s, reply.draft_ms() * 1e-3},
                               node->sessions, now_s);
    if (session.moving.node.empty()) Settle(sequence_id, /*answered=*/true);
  }
  session.warm = true;
  if (!session.waiting) return Drop(*node, reply, DroppedDraft::kGivenUp, &session);
  session.waiting = false;
  DraftArrival arrival;
  arrival.sequence_id = sequence_id;
  arrival.caught_up = caught_up;
  auto forest = proto::ForestFromMessage(reply.forest(), options_.vocab_size);
  absl::Status status = forest.ok() ? CheckForest(*forest, session.asked) : forest.status();
  status.Update(proto::CheckDraftTimes(reply));
  if (status.ok()) {
    arrival.forest = *std::move(forest);
    arrival.draft_s = reply.draft_ms() * 1e-3;
    arrival.model_s = reply.model_ms() * 1e-3;
  } else {
    LogFields(spdlog::level::warn,
              absl::StrCat("draft node ", node->id, ": bad reply: ", status.message()),
              {{"trace_id", TextOrNone(session.trace_id)}});
    arrival.failed = NoDraftReason::kMismatch;
  }
  out->push_back(std::move(arrival));
}

std::vector<DraftArrival> DraftClient::Receive(double now_s, double unseen_s) {
  now_s_ = now_s;
  states_left_ = kMostStateBytes;
  std::vector<DraftArrival> arrivals = std::exchange(lost_, {});
  for (auto& [id, node] : nodes_) {
    while (node.channel->Receive(&reply_)) {
      node.awake_until_s = reply_.announces() ? now_s + comm::kStayAwake_s : 0;
      if (!reply_.announces()) Take(&node, reply_, now_s, unseen_s, &arrivals);
    }
  }
  NoticeBreaks(now_s);
  for (DraftArrival& lost : std::exchange(lost_, {})) arrivals.push_back(std::move(lost));
  return arrivals;
}

double DraftClient::awake_until_s() const {
  double until_s = 0;
  for (const auto& [id, node] : nodes_) until_s = std::max(until_s, node.awake_until_s);
  return until_s;
}

std::vector<comm::Pollable> DraftClient::sockets() const {
  std::vector<comm::Pollable> sockets;
  for (const auto& [id, node] : nodes_) sockets.push_back(node.channel->socket());
  return sockets;
}

bool DraftClient::reading() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) {
    const Session& of = session.second;
    return (!of.node.empty() && !of.prefilled) || (!of.moving.node.empty() && !of.moving.read);
  });
}

uint64_t DraftClient::BytesOf(const Node& node) {
  const comm::ChannelCounters& counters = node.channel->counters();
  return counters.sent_bytes + counters.received_bytes;
}

uint64_t DraftClient::bytes() const {
  uint64_t bytes = bytes_before_;
  for (const auto& [id, node] : nodes_) bytes += BytesOf(node);
  return bytes;
}

int DraftClient::sessions_on(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  return found == nodes_.end() ? 0 : found->second.sessions;
}

std::vector<DraftNodeUse> DraftClient::Nodes() const {
  std::vector<DraftNodeUse> nodes;
  for (const auto& [id, node] : nodes_) nodes.push_back({id, node.sessions, node.mean_reply_s});
  return nodes;
}

}  // namespace coppice::worker
