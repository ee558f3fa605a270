// Which node has the session of a sequence: sessions that are opened, move, and are lost.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "decoding/draft_request.h"
#include "proto/convert.h"
#include "worker/draft_client.h"

namespace coppice::worker {
namespace {

constexpr double kRetryLateNodeAfter_s = 1.0;
constexpr double kLeaveLateNodeAfter_s = 0.2;  // a stall is shorter
constexpr double kFirstPause_s = 1, kLongestPause_s = 60;
constexpr double kLongestReading_s = 5;    // or four times as long as is expected
constexpr int kSettledAfter = 8;           // drafts
constexpr double kLongestSettling_s = 10;  // it may have no drafts meanwhile

int TokensToRead(const Sequence& sequence, uint32_t stable) {
  return static_cast<int>(sequence.prompt.size() + stable);
}

}  // namespace

std::vector<DraftNodeState> DraftClient::States(double now_s) const {
  std::vector<DraftNodeState> states;
  for (const auto& [id, node] : nodes_) {
    const DraftNodeHealth health = IsLate(node, now_s)             ? DraftNodeHealth::kLate
                                   : now_s < node.unsteady_until_s ? DraftNodeHealth::kUnsteady
                                                                   : DraftNodeHealth::kGood;
    states.push_back({&node.estimate, health, node.sessions, node.order});
  }
  return states;
}

DraftClient::Node* DraftClient::NodeAt(int index) {
  return index < 0 ? nullptr : &std::next(nodes_.begin(), index)->second;
}

DraftClient::Node* DraftClient::PickNode(const std::string& except, double now_s) {
  const auto found = nodes_.find(except);
  const int skipped =
      found == nodes_.end() ? -1 : static_cast<int>(std::distance(nodes_.begin(), found));
  return NodeAt(BestDraftNode(States(now_s), skipped, mean_depth_, now_s));
}

DraftClient::Node* DraftClient::NodeOf(const Session& session) {
  const auto found = nodes_.find(session.node);
  return found == nodes_.end() ? nullptr : &found->second;
}

void DraftClient::MarkLate(Node* node, double now_s) {
  if (node->late) return;
  const bool again = now_s < node->unsteady_until_s + node->pause_s;
  node->pause_s =
      again ? std::clamp(2 * node->pause_s, kFirstPause_s, kLongestPause_s) : kFirstPause_s;
  node->unsteady_until_s = now_s + node->pause_s;
  node->late = true;
  node->late_since_s = now_s;
}

// A node that owes this replica no answer cannot show that it is back, so it is tried.
bool DraftClient::IsLate(const Node& node, double now_s) {
  return node.late && (node.sessions > 0 || now_s < node.unsteady_until_s);
}

bool DraftClient::KeepsSilent(const Node& node, double now_s) {
  return node.late && now_s - node.late_since_s < kRetryLateNodeAfter_s;
}

// ---- Opening and closing.

uint64_t DraftClient::SendOpen(Node* node, const Sequence& sequence, bool begun, double now_s,
                               uint32_t* stable_sent) {
  if (!KeepsSilent(*node, now_s)) node->late = false;  // it is tried again
  const uint64_t wire_id = next_wire_id_++;
  proto::DraftCommand command;
  proto::OpenDraft* open = command.mutable_open();
  open->set_session_id(wire_id);
  open->mutable_prompt()->Assign(sequence.prompt.begin(), sequence.prompt.end());
  *open->mutable_decoding() = proto::DecodingToMessage(sequence.params);
  *open->mutable_trace() = proto::TraceToMessage(sequence.trace);
  open->set_log_probs(sequence.shows_rounds);
  if (begun) {
    const decoding::PathTree& paths = sequence.decoder->paths();
    const std::vector<TokenId> stable =
        paths.Tokens(decoding::SharedPath(paths, sequence.decoder->roots()), 0);
    open->mutable_stable_tokens()->Assign(stable.begin(), stable.end());
  }
  *stable_sent = static_cast<uint32_t>(open->stable_tokens_size());
  if (!node->channel->Send(command).ok()) return 0;
  ++node->sessions;
  sequence_of_wire_[wire_id] = sequence.id;
  return wire_id;
}

bool DraftClient::OpenOn(Node* node, const Sequence& sequence, bool begun, double now_s,
                         Session* session) {
  const std::optional<DraftMove> lost = session->lost;
  Forget(session);
  session->lost = lost;
  session->wire_id = SendOpen(node, sequence, begun, now_s, &session->stable_sent);
  if (session->wire_id == 0) return false;
  if (lost) ++moves_[*lost];
  session->node = node->id;
  session->owes_energy = node->measures;
  session->trace_id = sequence.trace.trace_id;
  session->opened_s = now_s;
  session->tokens_opened = TokensToRead(sequence, session->stable_sent);
  session->opened_round = sequence.round;
  return true;
}

void DraftClient::Open(const Sequence& sequence) {
  Node* node = PickNode("", now_s_);
  if (node != nullptr) OpenOn(node, sequence, /*begun=*/false, now_s_, &sessions_[sequence.id]);
}

void DraftClient::CloseOn(Node* node, uint64_t wire_id) {
  sequence_of_wire_.erase(wire_id);
  if (node == nullptr) return;
  --node->sessions;
  proto::DraftCommand command;
  command.mutable_close()->set_session_id(wire_id);
  node->channel->Send(command).IgnoreError();
}

void DraftClient::Drop(Session* session) {
  AbandonMove(session, /*tell_node=*/true);
  CloseOn(NodeOf(*session), session->wire_id);
  Forget(session);
}

// A session that is over. Energy that its node has not reported is not known.
void DraftClient::Forget(Session* session) {
  node::EnergyTally energy = session->energy;
  if (session->owes_energy) energy.Add(std::nullopt);
  *session = Session();
  session->energy = energy;
}

void DraftClient::Close(uint64_t sequence_id) {
  const auto found = sessions_.find(sequence_id);
  if (found == sessions_.end()) return;
  Drop(&found->second);
  Settle(sequence_id, /*answered=*/false);
  sessions_.erase(found);
}

void DraftClient::LoseSessions(Node* node) {
  for (auto& [id, session] : sessions_) {
    if (session.moving.node == node->id) AbandonMove(&session, /*tell_node=*/false);
    if (session.node != node->id) continue;
    if (session.waiting) lost_.push_back(DraftArrival::Failed(id, NoDraftReason::kDead));
    sequence_of_wire_.erase(session.wire_id);
    const Moving moving = session.moving;  // another node reads its tokens already
    Forget(&session);
    session.moving = moving;
    session.lost = DraftMove::kGone;
    Settle(id, /*answered=*/false);
  }
  node->sessions = 0;
}

// A node whose connection was lost no longer knows its sessions. The draft of this process, which
// has failed, does not come back.
void DraftClient::NoticeBreaks(double now_s) {
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    auto& [id, node] = *it++;
    const uint64_t breaks = node.channel->breaks();
    if (breaks == node.breaks_seen) continue;
    if (node.own) {
      LoseSessions(&node);
      bytes_before_ += BytesOf(node);
      nodes_.erase(std::prev(it));
      continue;
    }
    spdlog::warn("draft node {}: the connection was lost", id);
    node.breaks_seen = breaks;
    MarkLate(&node, now_s);
    LoseSessions(&node);
  }
}

// ---- Moving.

void DraftClient::BeginMove(Node* node, const Sequence& sequence, DraftMove why, double now_s,
                            Session* session) {
  Moving moving;
  moving.wire_id = SendOpen(node, sequence, /*begun=*/true, now_s, &moving.stable_sent);
  if (moving.wire_id == 0) return MarkLate(node, now_s);
  moving.node = node->id;
  moving.begun_s = now_s;
  moving.tokens = TokensToRead(sequence, moving.stable_sent);
  moving.why = why;
  session->moving = moving;
  LogFields(spdlog::level::debug, absl::StrCat("a session moves to draft node ", node->id),
            {{"reason", DraftMoveName(why)}, {"trace_id", TextOrNone(session->trace_id)}});
}

void DraftClient::AbandonMove(Session* session, bool tell_node) {
  if (session->moving.node.empty()) return;
  const auto found = nodes_.find(session->moving.node);
  if (found != nodes_.end() && found->second.measures) session->energy.Add(std::nullopt);
  const auto of = sequence_of_wire_.find(session->moving.wire_id);
  if (of != sequence_of_wire_.end()) Settle(of->second, /*answered=*/false);
  CloseOn(tell_node && found != nodes_.end() ? &found->second : nullptr, session->moving.wire_id);
  session->moving = {};
}

void DraftClient::Settle(uint64_t sequence_id, bool answered) {
  if (sequence_id != settling_) return;
  if (!answered || ++settled_drafts_ >= kSettledAfter) settling_until_s_ = 0;
}

void DraftClient::EndMove(const Sequence& sequence, double now_s, Session* session) {
  const Moving moving = session->moving;
  if (moving.node.empty()) return;
  Node& node = nodes_.at(moving.node);
  if (!moving.read) {
    const double reading_s = node.estimate.Reading(moving.tokens);
    if (now_s - std::max(moving.begun_s, moving.fed_s) < std::max(kLongestReading_s, 4 * reading_s))
      return;
    MarkLate(&node, now_s);
    AbandonMove(session, /*tell_node=*/true);
    session->opened_round = sequence.round;
    return;
  }
  if (node.late) return AbandonMove(session, /*tell_node=*/true);
  session->moving = {};
  CloseOn(NodeOf(*session), session->wire_id);
  Forget(session);
  session->node = moving.node;
  session->wire_id = moving.wire_id;
  session->trace_id = sequence.trace.trace_id;
  session->stable_sent = moving.stable_sent;
  session->tokens_opened = moving.tokens;
  session->states = moving.states;
  session->prefilled = true;
  session->opened_s = moving.begun_s;
  session->opened_round = sequence.round;
  ++moves_[moving.why];
}

void DraftClient::MoveIfFaster(const Sequence& sequence, double now_s, Session* session) {
  if (now_s < settling_until_s_ || !session->warm || !session->moving.node.empty()) return;
  const auto found = nodes_.find(session->node);
  if (found == nodes_.end() || !found->second.estimate.known(now_s)) return;
  const int here = static_cast<int>(std::distance(nodes_.begin(), found));
  const std::vector<DraftNodeState> states = States(now_s);
  const int there = BestDraftNode(states, here, mean_depth_, now_s);
  if (there < 0 || states[there].health != DraftNodeHealth::kGood) return;
  const int layers = sequence.decoder->layers_committed();
  SessionMove move;
  move.now_s = ExpectedReply(states, here, 0, mean_depth_, now_s);
  move.then_s = ExpectedReply(states, there, 1, mean_depth_, now_s);
  move.reading_s =
      states[there].estimate->Reading(static_cast<int>(sequence.prompt.size()) + layers);
  move.rounds_run = sequence.round;
  move.rounds_since_move = sequence.round - session->opened_round;
  move.most_rounds_left = sequence.params.max_tokens - layers;
  if (!WorthMoving(move)) return;
  BeginMove(NodeAt(there), sequence, DraftMove::kSlow, now_s, session);
  if (session->moving.node.empty()) return;
  settling_ = sequence.id;
  settling_until_s_ = now_s + kLongestSettling_s;
  settled_drafts_ = 0;
}

// What the late node has read is worth a short wait. Nothing is lost with a session that it has not
// read.
void DraftClient::LeaveLateNode(const Sequence& sequence, double now_s, Session* session) {
  const Node& node = *NodeOf(*session);
  Node* other = PickNode(node.id, now_s);
  if (other == nullptr || IsLate(*other, now_s)) return;
  if (!session->warm && !session->prefilled) {
    Drop(session);
    session->lost = DraftMove::kLate;
  } else if (now_s - node.late_since_s >= kLeaveLateNodeAfter_s && session->moving.node.empty()) {
    BeginMove(other, sequence, DraftMove::kLate, now_s, session);
  }
}

NoDraftReason DraftClient::FindNode(const Sequence& sequence, double now_s, Session* session,
                                    Node** node) {
  if (nodes_.empty()) return refused_.empty() ? NoDraftReason::kNoNode : NoDraftReason::kNoStates;
  if (now_s < session->refused_until_s) return NoDraftReason::kRefused;
  EndMove(sequence, now_s, session);
  *node = NodeOf(*session);
  if (*node != nullptr && (*node)->late) {
    LeaveLateNode(sequence, now_s, session);
    *node = NodeOf(*session);
    if (*node != nullptr && KeepsSilent(**node, now_s)) return NoDraftReason::kLate;
  } else if (*node != nullptr && session->moving.why == DraftMove::kLate) {
    AbandonMove(session, /*tell_node=*/true);  // the node has answered after all
  }
  if (*node == nullptr) {
    if (!session->moving.node.empty()) return NoDraftReason::kReading;
    *node = PickNode(session->avoids, now_s);
    if (*node == nullptr) *node = PickNode("", now_s);
    if (KeepsSilent(**node, now_s)) return NoDraftReason::kLate;
    if (!OpenOn(*node, sequence, /*begun=*/true, now_s, session)) {
      MarkLate(*node, now_s);
      return NoDraftReason::kDead;
    }
  }
  const bool reads = session->lost && !session->prefilled;
  return reads ? NoDraftReason::kReading : NoDraftReason::kNone;
}

NoDraftReason DraftClient::Prepare(const Sequence& sequence, double now_s, bool* read) {
  Session& session = sessions_[sequence.id];
  Node* node = nullptr;
  NoDraftReason why = FindNode(sequence, now_s, &session, &node);
  if (why == NoDraftReason::kReading) why = NoDraftReason::kNone;
  *read = why == NoDraftReason::kNone && session.prefilled;
  return why;
}

}  // namespace coppice::worker
