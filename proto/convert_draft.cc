#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice::proto {

using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckLength;
using wire::CheckRange;
using wire::Fill;
using wire::kMostStatistic;
using wire::ToVector;

namespace {

// Parents as they are sent: the code of a place. A tree that was received is checked afterwards.
void FillParents(const TokenTree& tree, google::protobuf::RepeatedField<int32_t>* sent) {
  sent->Reserve(tree.size());
  for (const TreePlace parent : tree.parent) sent->Add(parent.code());
}

TokenTree UncheckedTree(int num_roots, absl::Span<const TokenId> token,
                        absl::Span<const int32_t> parent) {
  TokenTree tree;
  tree.num_roots = num_roots;
  tree.token.assign(token.begin(), token.end());
  tree.parent.reserve(parent.size());
  for (const int32_t code : parent) tree.parent.push_back(TreePlace::FromCode(code));
  return tree;
}

}  // namespace

proto::Forest ForestToMessage(const decoding::DraftForest& forest) {
  proto::Forest message;
  message.set_num_roots(forest.num_roots);
  Fill(forest.token, message.mutable_token());
  FillParents(forest, message.mutable_parent());
  Fill(forest.layer_begin, message.mutable_layer_begin());
  for (const decoding::Proposal& proposal : forest.proposals) {
    proto::Proposal* sent = message.add_proposal();
    sent->set_node(proposal.place.code());
    sent->set_log_weight(proposal.log_weight);
    Fill(proposal.row.tokens, sent->mutable_token());
    Fill(proposal.row.log_probs, sent->mutable_log_q());
  }
  message.mutable_draw()->Reserve(static_cast<int>(forest.draws.size()));
  for (const NodeId node : forest.draws) message.add_draw(Index(node));
  Fill(forest.draws_begin, message.mutable_draw_begin());
  Fill(forest.log_probs, message.mutable_log_prob());
  return message;
}

absl::StatusOr<decoding::DraftForest> ForestFromMessage(const proto::Forest& message,
                                                        int vocab_size) {
  COPPICE_RETURN_IF_ERROR(
      CheckRange("num_roots", int64_t{message.num_roots()}, 0, decoding::kMostBeams));
  decoding::DraftForest forest;
  static_cast<TokenTree&>(forest) =
      UncheckedTree(message.num_roots(), message.token(), message.parent());
  forest.layer_begin = ToVector(message.layer_begin());
  forest.proposals.reserve(message.proposal_size());
  for (int i = 0; i < message.proposal_size(); ++i) {
    const proto::Proposal& sent = message.proposal(i);
    COPPICE_RETURN_IF_ERROR(
        CheckLength(absl::StrCat("proposal[", i, "].log_q"), sent.log_q_size(), sent.token_size()));
    forest.proposals.push_back({TreePlace::FromCode(sent.node()),
                                sent.log_weight(),
                                {ToVector(sent.token()), ToVector(sent.log_q())}});
  }
  forest.draws.reserve(message.draw_size());
  for (const int32_t node : message.draw()) forest.draws.push_back(NodeId{node});
  forest.draws_begin = ToVector(message.draw_begin());
  forest.log_probs = ToVector(message.log_prob());
  COPPICE_RETURN_IF_ERROR(forest.Validate(vocab_size));
  return forest;
}

absl::Status CheckDraftTimes(const proto::DraftReply& reply) {
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_ms", reply.draft_ms(), 0.0, kMostStatistic));
  return CheckRange("model_ms", reply.model_ms(), 0.0, kMostStatistic);
}

std::optional<double> DraftEnergy(const proto::DraftReply& reply) {
  if (!reply.has_energy_joules()) return std::nullopt;
  const double joules = reply.energy_joules();
  if (!CheckRange("energy_joules", joules, 0.0, kMostStatistic).ok()) return std::nullopt;
  return joules;
}

namespace {

void FillState(const decoding::DraftState& state, proto::RoundState* message) {
  Fill(state.root_score, message->mutable_root_score());
  Fill(state.root_multiplicity, message->mutable_root_multiplicity());
  Fill(state.slot_root, message->mutable_slot_root());
  message->set_layers_committed(state.layers_committed);
  Fill(state.slot_token, message->mutable_slot_token());
  Fill(state.slot_log_prob, message->mutable_slot_log_prob());
  Fill(state.known_roots, message->mutable_known_root());
  for (const decoding::DraftState::KnownChild& child : state.known_children) {
    proto::KnownChild* sent = message->add_known_child();
    sent->set_root(child.root);
    sent->set_token(child.token);
    sent->set_score(child.score);
    sent->set_key(child.key);
  }
  for (const decoding::DraftState::GroupBeam& beam : state.group_beams) {
    proto::GroupBeam* sent = message->add_group_beam();
    sent->set_root(beam.root);
    sent->set_group(beam.group);
    sent->set_penalty(beam.penalty);
  }
}

// The root of the tree is the stable path: -1 in messages.
absl::StatusOr<decoding::RootTree> RootsFromMessage(const proto::DraftRequest& message,
                                                    int vocab_size) {
  const auto& parent = message.trie_parent();
  const auto& ends = message.state().root_trie();
  COPPICE_RETURN_IF_ERROR(CheckEntries("trie_token", message.trie_token(), 0, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLength("trie_token", message.trie_token_size(), parent.size()));
  for (int i = 0; i < parent.size(); ++i) {
    if (parent[i] < -1 || parent[i] >= i) {
      return BadEntry("trie_parent", i, absl::StrCat(parent[i], " is not an earlier entry or -1"));
    }
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("root_trie", ends, 0, parent.size()));
  decoding::RootTree roots;
  roots.tree = UncheckedTree(/*num_roots=*/1, message.trie_token(), parent);
  roots.ends.reserve(ends.size());
  for (const int32_t end : ends) roots.ends.push_back(NodeId{end});
  return roots;
}

absl::Status CheckKnownChildren(const proto::RoundState& message, int vocab_size) {
  for (int i = 0; i < message.known_child_size(); ++i) {
    const proto::KnownChild& child = message.known_child(i);
    if (child.root() < 0 || child.root() >= message.root_trie_size())
      return BadEntry("known_child", i, absl::StrCat("root ", child.root(), " is not a root"));
    if (child.token() < 0 || child.token() >= vocab_size)
      return BadEntry("known_child", i,
                      absl::StrCat("token ", child.token(), " is not in [0, ", vocab_size, ")"));
    if (!std::isfinite(child.score()) || !std::isfinite(child.key()))
      return BadEntry("known_child", i, "is not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckGroupBeams(const proto::RoundState& message) {
  for (int i = 0; i < message.group_beam_size(); ++i) {
    const proto::GroupBeam& beam = message.group_beam(i);
    if (beam.root() < 0 || beam.root() >= message.root_trie_size())
      return BadEntry("group_beam", i, absl::StrCat("root ", beam.root(), " is not a root"));
    if (beam.group() < 0 || beam.group() >= decoding::kMostBeams)
      return BadEntry("group_beam", i, absl::StrCat("group ", beam.group(), " is not a group"));
    if (!std::isfinite(beam.penalty())) return BadEntry("group_beam", i, "is not finite");
  }
  return absl::OkStatus();
}

absl::Status CheckState(const proto::RoundState& message, int vocab_size) {
  const size_t roots = message.root_trie_size();
  COPPICE_RETURN_IF_ERROR(CheckLength("root_score", message.root_score_size(), roots));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("root_multiplicity", message.root_multiplicity_size(), roots));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("root_multiplicity", message.root_multiplicity(), 1, decoding::kMostBeams + 1));
  COPPICE_RETURN_IF_ERROR(CheckEntries("slot_root", message.slot_root(), 0, roots));
  for (int i = 0; i < message.root_score_size(); ++i) {
    if (!std::isfinite(message.root_score(i))) return BadEntry("root_score", i, "is not finite");
  }
  if (message.slot_token_size() > 0) {
    COPPICE_RETURN_IF_ERROR(
        CheckLength("slot_token", message.slot_token_size(), message.slot_root_size()));
    COPPICE_RETURN_IF_ERROR(CheckEntries("slot_token", message.slot_token(), -1, vocab_size));
  }
  COPPICE_RETURN_IF_ERROR(
      CheckLength("slot_log_prob", message.slot_log_prob_size(), message.slot_token_size()));
  for (int i = 0; i < message.slot_log_prob_size(); ++i) {
    if (!std::isfinite(message.slot_log_prob(i)))
      return BadEntry("slot_log_prob", i, "is not finite");
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("known_root", message.known_root(), 0, roots));
  COPPICE_RETURN_IF_ERROR(CheckGroupBeams(message));
  return CheckKnownChildren(message, vocab_size);
}

decoding::DraftState StateOf(const proto::RoundState& message) {
  decoding::DraftState state;
  state.root_score = ToVector(message.root_score());
  state.root_multiplicity = ToVector(message.root_multiplicity());
  state.slot_root = ToVector(message.slot_root());
  state.slot_token = ToVector(message.slot_token());
  state.slot_log_prob = ToVector(message.slot_log_prob());
  state.known_roots = ToVector(message.known_root());
  for (const proto::KnownChild& child : message.known_child())
    state.known_children.push_back({child.root(), child.token(), child.score(), child.key()});
  for (const proto::GroupBeam& beam : message.group_beam())
    state.group_beams.push_back({beam.root(), beam.group(), beam.penalty()});
  state.layers_committed = message.layers_committed();
  return state;
}

}  // namespace

proto::RowStates StatesToMessage(const decoding::RowStates& states) {
  static_assert(std::endian::native == std::endian::little);
  proto::RowStates message;
  message.set_first(states.first);
  message.set_count(states.count);
  for (const NodeId node : states.nodes) message.add_trie(Index(node));
  message.set_values(states.values.data(), states.values.size() * sizeof(uint16_t));
  return message;
}

absl::StatusOr<decoding::RowStates> StatesFromMessage(const proto::RowStates& message, int columns,
                                                      int trie_size) {
  decoding::RowStates states;
  states.first = message.first();
  states.count = message.count();
  COPPICE_RETURN_IF_ERROR(CheckEntries("states.trie", message.trie(), 0, trie_size));
  for (int i = 0; i < message.trie_size(); ++i) {
    if (i > 0 && message.trie(i) <= message.trie(i - 1))
      return BadEntry("states.trie", i, "is not above the entry before");
    states.nodes.push_back(NodeId{message.trie(i)});
  }
  const uint64_t rows = uint64_t{states.count} + states.nodes.size();
  COPPICE_RETURN_IF_ERROR(
      CheckLength("states.values", message.values().size(), rows * columns * sizeof(uint16_t)));
  states.values.resize(rows * columns);
  std::memcpy(states.values.data(), message.values().data(), message.values().size());
  constexpr uint16_t kExponent = 0x7f80;  // of infinities and NaNs
  const auto bad = std::find_if(states.values.begin(), states.values.end(),
                                [](uint16_t value) { return (value & kExponent) == kExponent; });
  if (bad != states.values.end())
    return BadEntry("states.values", static_cast<int>(bad - states.values.begin()),
                    "is not finite");
  return states;
}

proto::DraftRequest DraftRequestToMessage(const decoding::DraftRequest& request) {
  proto::DraftRequest message;
  message.set_session_id(request.session_id);
  message.set_round(request.round);
  message.set_width(request.width);
  message.set_depth(request.depth);
  message.set_stable_length(request.stable_length);
  Fill(request.stable_tokens, message.mutable_stable_tokens());
  FillParents(request.roots.tree, message.mutable_trie_parent());
  Fill(request.roots.tree.token, message.mutable_trie_token());
  for (const NodeId end : request.roots.ends) message.mutable_state()->add_root_trie(Index(end));
  FillState(request.state, message.mutable_state());
  if (!request.states.values.empty()) *message.mutable_states() = StatesToMessage(request.states);
  return message;
}

absl::StatusOr<decoding::DraftRequest> DraftRequestFromMessage(const proto::DraftRequest& message,
                                                               int vocab_size, int state_columns) {
  COPPICE_RETURN_IF_ERROR(CheckEntries("stable_tokens", message.stable_tokens(), 0, vocab_size));
  decoding::DraftRequest request;
  COPPICE_ASSIGN_OR_RETURN(request.roots, RootsFromMessage(message, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckState(message.state(), vocab_size));
  request.state = StateOf(message.state());
  request.session_id = message.session_id();
  request.round = message.round();
  request.width = message.width();
  request.depth = message.depth();
  request.stable_length = message.stable_length();
  request.stable_tokens = ToVector(message.stable_tokens());
  COPPICE_ASSIGN_OR_RETURN(request.states, StatesFromMessage(message.states(), state_columns,
                                                             request.roots.tree.size()));
  return request;
}

}  // namespace coppice::proto
