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

constexpr double kRetryLateNodeAfter_s = 1.0;
constexpr double kRetryRefusedAfter_s = 1.0;
constexpr size_t kFewTokens = 32;  // tokens; about the most that a round with a draft decides

DraftArrival Failed(uint64_t sequence_id, NoDraftReason why) {
  DraftArrival arrival;
  arrival.sequence_id = sequence_id;
  arrival.failed = why;
  return arrival;
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
  }
  return "none";
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
  std::map<std::string, std::string> wanted;
  std::map<std::string, uint64_t> domains;
  for (const auto& node : message.nodes()) {
    wanted[node.node_id()] = node.endpoint();
    domains[node.node_id()] = node.energy_domain();
  }
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto found = wanted.find(it->first);
    if (found != wanted.end() && found->second == it->second.endpoint) {
      wanted.erase(found);
      ++it;
      continue;
    }
    spdlog::warn("draft node {} is gone", it->first);
    LoseSessions(&it->second);
    it = nodes_.erase(it);
  }
  for (const auto& [id, endpoint] : wanted) {
    auto channel = comm::ClientChannel::Connect(endpoint, options_.channel);
    if (!channel.ok()) {
      spdlog::warn("draft node {}: {}", id, std::string(channel.status().message()));
      continue;
    }
    spdlog::info("draft node {} at {}", id, endpoint);
    Node& node = nodes_[id];
    node.id = id;
    node.measures = options_.energy_domain != 0 && domains[id] != options_.energy_domain;
    node.endpoint = endpoint;
    node.channel = *std::move(channel);
  }
}

void DraftClient::LoseSessions(Node* node) {
  for (auto& [id, session] : sessions_) {
    if (session.node != node->id) continue;
    if (session.waiting) lost_.push_back(Failed(id, NoDraftReason::kDead));
    sequence_of_wire_.erase(session.wire_id);
    Forget(&session);
  }
  node->sessions = 0;
}

// A session that is over. Energy that its node has not reported is not known.
void DraftClient::Forget(Session* session) {
  node::EnergyTally energy = session->energy;
  if (session->owes_energy) energy.Add(std::nullopt);
  *session = Session();
  session->energy = energy;
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

// A node whose connection was lost no longer knows its sessions.
void DraftClient::NoticeBreaks(double now_s) {
  for (auto& [id, node] : nodes_) {
    const uint64_t breaks = node.channel->breaks();
    if (breaks == node.breaks_seen) continue;
    spdlog::warn("draft node {}: the connection was lost", id);
    node.breaks_seen = breaks;
    MarkLate(&node, now_s);
    LoseSessions(&node);
  }
}

void DraftClient::MarkLate(Node* node, double now_s) {
  if (node->late) return;
  node->late = true;
  node->late_since_s = now_s;
}

DraftClient::Node* DraftClient::PickNode() {
  Node* best = nullptr;
  for (auto& [id, node] : nodes_) {
    if (best == nullptr ||
        std::pair(node.late, node.sessions) < std::pair(best->late, best->sessions)) {
      best = &node;
    }
  }
  return best;
}

DraftClient::Node* DraftClient::NodeOf(const Session& session) {
  const auto found = nodes_.find(session.node);
  return found == nodes_.end() ? nullptr : &found->second;
}

bool DraftClient::OpenOn(Node* node, const Sequence& sequence, Session* session) {
  Forget(session);
  session->wire_id = next_wire_id_++;
  proto::DraftCommand command;
  proto::OpenDraft* open = command.mutable_open();
  open->set_session_id(session->wire_id);
  open->mutable_prompt()->Assign(sequence.prompt.begin(), sequence.prompt.end());
  *open->mutable_decoding() = proto::DecodingToMessage(sequence.params);
  *open->mutable_trace() = proto::TraceToMessage(sequence.trace);
  open->set_log_probs(sequence.shows_rounds);
  if (!node->channel->Send(command).ok()) return false;
  session->node = node->id;
  session->owes_energy = node->measures;
  session->trace_id = sequence.trace.trace_id;
  ++node->sessions;
  sequence_of_wire_[session->wire_id] = sequence.id;
  return true;
}

void DraftClient::Open(const Sequence& sequence) {
  Node* node = PickNode();
  if (node != nullptr) OpenOn(node, sequence, &sessions_[sequence.id]);
}

void DraftClient::Drop(Session* session) {
  if (Node* node = NodeOf(*session); node != nullptr) {
    --node->sessions;
    proto::DraftCommand command;
    command.mutable_close()->set_session_id(session->wire_id);
    node->channel->Send(command).IgnoreError();
  }
  sequence_of_wire_.erase(session->wire_id);
  Forget(session);
}

bool DraftClient::KeepsSilent(const Node& node, double now_s) {
  return node.late && now_s - node.late_since_s < kRetryLateNodeAfter_s;
}

NoDraftReason DraftClient::FindNode(const Sequence& sequence, double now_s, Session* session,
                                    Node** node) {
  if (nodes_.empty()) return NoDraftReason::kNoNode;
  if (now_s < session->refused_until_s) return NoDraftReason::kRefused;
  *node = NodeOf(*session);
  if (*node != nullptr && KeepsSilent(**node, now_s)) {
    if (PickNode()->late) return NoDraftReason::kLate;
    Drop(session);
    *node = nullptr;
  }
  if (*node != nullptr) return NoDraftReason::kNone;
  *node = PickNode();
  if (KeepsSilent(**node, now_s)) return NoDraftReason::kLate;
  if (OpenOn(*node, sequence, session)) return NoDraftReason::kNone;
  MarkLate(*node, now_s);
  return NoDraftReason::kDead;
}

NoDraftReason DraftClient::Prepare(const Sequence& sequence, double now_s, bool* read) {
  Session& session = sessions_[sequence.id];
  Node* node = nullptr;
  const NoDraftReason why = FindNode(sequence, now_s, &session, &node);
  *read = why == NoDraftReason::kNone && session.prefilled;
  return why;
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
  decoding::DraftRequest request =
      decoding::MakeDraftRequest(*sequence.decoder, width, depth, session.stable_sent);
  request.session_id = session.wire_id;
  request.round = sequence.round;
  proto::DraftCommand command;
  *command.mutable_draft() = proto::DraftRequestToMessage(request);
  if (!node->channel->Send(command).ok()) {
    MarkLate(node, now_s);
    Drop(&session);
    return NoDraftReason::kDead;
  }
  session.tokens_sent = request.stable_tokens.size();
  session.stable_sent = request.stable_length;
  session.asked_round = sequence.round;
  session.asked = {sequence.params.method, static_cast<int>(sequence.decoder->roots().size()),
                   depth, sequence.draft.Nodes(width, depth),
                   std::max(1, sequence.params.draft_top_k)};
  session.asked_s = now_s;
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

void DraftClient::Close(uint64_t sequence_id) {
  const auto found = sessions_.find(sequence_id);
  if (found == sessions_.end()) return;
  Drop(&found->second);
  sessions_.erase(found);
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

void DraftClient::Take(Node* node, const proto::DraftReply& reply, double now_s,
                       std::vector<DraftArrival>* out) {
  node->late = false;
  const auto wire = sequence_of_wire_.find(reply.session_id());
  if (wire == sequence_of_wire_.end()) {
    const bool draft = !reply.prefilled() && reply.error().empty();
    return draft ? Drop(*node, reply, DroppedDraft::kNoSession, nullptr) : void();
  }
  const uint64_t sequence_id = wire->second;
  Session& session = sessions_.at(sequence_id);
  if (session.node != node->id) {
    spdlog::warn("draft node {}: it answers for a session of {}; dropped", node->id, session.node);
    return Drop(*node, reply, DroppedDraft::kOtherNode, &session);
  }
  TakeEnergy(*node, reply, &session);
  if (reply.prefilled()) {
    session.prefilled = true;
    if (session.asked_round == 0) session.owes_energy = false;
    return;
  }
  if (!reply.error().empty()) {
    LogFields(spdlog::level::warn, absl::StrCat("draft node ", node->id, ": ", reply.error()),
              {{"trace_id", TextOrNone(session.trace_id)}});
    if (session.waiting) out->push_back(Failed(sequence_id, NoDraftReason::kRefused));
    --node->sessions;
    sequence_of_wire_.erase(wire);
    session.owes_energy = false;
    Forget(&session);
    session.refused_until_s = now_s + kRetryRefusedAfter_s;
    return;
  }
  if (reply.round() != session.asked_round)  // most likely an earlier round
    return Drop(*node, reply, DroppedDraft::kOtherRound, &session);
  session.owes_energy = false;
  const double reply_s = now_s - session.asked_s;
  if (session.warm) {
    node->mean_reply_s =
        node->mean_reply_s == 0 ? reply_s : 0.8 * node->mean_reply_s + 0.2 * reply_s;
  }
  const bool caught_up = session.warm && session.tokens_sent <= kFewTokens;
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

std::vector<DraftArrival> DraftClient::Receive(double now_s) {
  std::vector<DraftArrival> arrivals = std::exchange(lost_, {});
  for (auto& [id, node] : nodes_) {
    while (node.channel->Receive(&reply_)) {
      node.awake_until_s = reply_.announces() ? now_s + comm::kStayAwake_s : 0;
      if (!reply_.announces()) Take(&node, reply_, now_s, &arrivals);
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
    return !session.second.node.empty() && !session.second.prefilled;
  });
}

uint64_t DraftClient::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, node] : nodes_) {
    bytes += node.channel->counters().sent_bytes + node.channel->counters().received_bytes;
  }
  return bytes;
}

int DraftClient::sessions_on(const std::string& node_id) const {
  const auto found = nodes_.find(node_id);
  return found == nodes_.end() ? 0 : found->second.sessions;
}

}  // namespace coppice::worker
