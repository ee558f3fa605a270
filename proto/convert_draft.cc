#include <cmath>

#include "base/status.h"
#include "proto/convert.h"
#include "proto/field_checks.h"
#include "sampling/rng.h"

namespace coppice::proto {

using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckLength;
using wire::CheckRange;
using wire::Fill;
using wire::kMostStatistic;
using wire::ToVector;

proto::Forest ForestToMessage(const decoding::DraftForest& forest) {
  proto::Forest message;
  message.set_num_roots(forest.num_roots);
  Fill(forest.token, message.mutable_token());
  Fill(forest.parent, message.mutable_parent());
  Fill(forest.layer_begin, message.mutable_layer_begin());
  for (const decoding::Proposal& proposal : forest.proposals) {
    proto::Proposal* sent = message.add_proposal();
    sent->set_node(proposal.node);
    sent->set_log_weight(proposal.log_weight);
    Fill(proposal.row.tokens, sent->mutable_token());
    Fill(proposal.row.log_probs, sent->mutable_log_q());
  }
  Fill(forest.draws, message.mutable_draw());
  Fill(forest.draws_begin, message.mutable_draw_begin());
  return message;
}

absl::StatusOr<decoding::DraftForest> ForestFromMessage(const proto::Forest& message,
                                                        int vocab_size) {
  COPPICE_RETURN_IF_ERROR(
      CheckRange("num_roots", int64_t{message.num_roots()}, 0, decoding::kMostBeams));
  decoding::DraftForest forest;
  forest.num_roots = message.num_roots();
  forest.token = ToVector(message.token());
  forest.parent = ToVector(message.parent());
  forest.layer_begin = ToVector(message.layer_begin());
  forest.proposals.reserve(message.proposal_size());
  for (int i = 0; i < message.proposal_size(); ++i) {
    const proto::Proposal& sent = message.proposal(i);
    COPPICE_RETURN_IF_ERROR(
        CheckLength(absl::StrCat("proposal[", i, "].log_q"), sent.log_q_size(), sent.token_size()));
    forest.proposals.push_back(
        {sent.node(), sent.log_weight(), {ToVector(sent.token()), ToVector(sent.log_q())}});
  }
  forest.draws = ToVector(message.draw());
  forest.draws_begin = ToVector(message.draw_begin());
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

proto::RoundState DraftStateToMessage(const decoding::DraftState& state,
                                      absl::Span<const int32_t> root_trie) {
  proto::RoundState message;
  Fill(root_trie, message.mutable_root_trie());
  Fill(state.root_score, message.mutable_root_score());
  Fill(state.root_multiplicity, message.mutable_root_multiplicity());
  Fill(state.slot_root, message.mutable_slot_root());
  message.set_layers_committed(state.layers_committed);
  Fill(state.slot_token, message.mutable_slot_token());
  Fill(state.slot_log_prob, message.mutable_slot_log_prob());
  Fill(state.known_roots, message.mutable_known_root());
  for (const decoding::DraftState::KnownChild& child : state.known_children) {
    proto::KnownChild* sent = message.add_known_child();
    sent->set_root(child.root);
    sent->set_token(child.token);
    sent->set_score(child.score);
    sent->set_key(child.key);
  }
  return message;
}

absl::StatusOr<decoding::DraftState> DraftStateFromMessage(const proto::RoundState& message,
                                                           uint64_t stable_hash,
                                                           absl::Span<const int32_t> trie_parent,
                                                           absl::Span<const TokenId> trie_token) {
  const size_t roots = message.root_trie_size();
  COPPICE_RETURN_IF_ERROR(CheckLength("trie_token", trie_token.size(), trie_parent.size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("trie_token", trie_token, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckEntries("root_trie", message.root_trie(), -1, trie_parent.size()));
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
    COPPICE_RETURN_IF_ERROR(CheckEntries("slot_token", message.slot_token(), -1, INT32_MAX));
  }
  COPPICE_RETURN_IF_ERROR(
      CheckLength("slot_log_prob", message.slot_log_prob_size(), message.slot_token_size()));
  for (int i = 0; i < message.slot_log_prob_size(); ++i) {
    if (!std::isfinite(message.slot_log_prob(i)))
      return BadEntry("slot_log_prob", i, "is not finite");
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("known_root", message.known_root(), 0, roots));
  for (int i = 0; i < message.known_child_size(); ++i) {
    const proto::KnownChild& child = message.known_child(i);
    if (child.root() < 0 || static_cast<size_t>(child.root()) >= roots)
      return BadEntry("known_child", i, absl::StrCat("root ", child.root(), " is not a root"));
    if (child.token() < 0)
      return BadEntry("known_child", i, absl::StrCat("token ", child.token(), " is negative"));
    if (!std::isfinite(child.score()) || !std::isfinite(child.key()))
      return BadEntry("known_child", i, "is not finite");
  }
  std::vector<uint64_t> hash(trie_parent.size());
  for (size_t i = 0; i < trie_parent.size(); ++i) {
    const int32_t parent = trie_parent[i];
    if (parent < -1 || parent >= static_cast<int64_t>(i)) {
      return BadEntry("trie_parent", i, absl::StrCat(parent, " is not an earlier entry or -1"));
    }
    hash[i] = sampling::ExtendHash(parent < 0 ? stable_hash : hash[parent], trie_token[i]);
  }
  decoding::DraftState state;
  for (int32_t entry : message.root_trie()) {
    state.root_hash.push_back(entry < 0 ? stable_hash : hash[entry]);
  }
  state.root_score = ToVector(message.root_score());
  state.root_multiplicity = ToVector(message.root_multiplicity());
  state.slot_root = ToVector(message.slot_root());
  state.slot_token = ToVector(message.slot_token());
  state.slot_log_prob = ToVector(message.slot_log_prob());
  state.known_roots = ToVector(message.known_root());
  for (const proto::KnownChild& child : message.known_child())
    state.known_children.push_back({child.root(), child.token(), child.score(), child.key()});
  state.layers_committed = message.layers_committed();
  return state;
}

}  // namespace coppice::proto
