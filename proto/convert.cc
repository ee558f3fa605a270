#include "proto/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "base/status.h"

namespace coppice {
namespace {

constexpr int kMostBeams = 1 << 16;  // far above any policy; keeps sizes computed from fields small

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}
absl::Status BadEntry(absl::string_view field, int64_t index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, "[", index, "]: ", what));
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}
absl::Status CheckRange(absl::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return Bad(field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}
absl::Status CheckLength(absl::string_view field, size_t length, size_t wanted) {
  if (length == wanted) return absl::OkStatus();
  return Bad(field, absl::StrCat(length, " entries, want ", wanted));
}
absl::Status CheckEntries(absl::string_view field, absl::Span<const int32_t> values, int64_t low,
                          int64_t end) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < low || values[i] >= end) {
      return BadEntry(field, i, absl::StrCat(values[i], " is not in [", low, ", ", end, ")"));
    }
  }
  return absl::OkStatus();
}
// offsets [n + 1]: 0 at first, never falling, `size` at last.
absl::Status CheckOffsets(absl::string_view field, absl::Span<const int32_t> offsets, size_t size) {
  if (offsets.empty() || offsets.front() != 0) return Bad(field, "does not start with 0");
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return BadEntry(field, i, "falls");
  }
  if (offsets.back() == static_cast<int64_t>(size)) return absl::OkStatus();
  return BadEntry(field, offsets.size() - 1, absl::StrCat(offsets.back(), ", want ", size));
}

template <typename Repeated>
auto ToVector(const Repeated& repeated) {
  return std::vector<std::decay_t<decltype(*repeated.begin())>>(repeated.begin(), repeated.end());
}
template <typename Values, typename Repeated>
void Fill(const Values& values, Repeated* repeated) {
  repeated->Assign(values.begin(), values.end());
}

absl::Status CheckWarp(const proto::Decoding& message) {
  const double most = std::numeric_limits<double>::max();
  COPPICE_RETURN_IF_ERROR(CheckRange("temperature", message.temperature(), 0.0, most));
  COPPICE_RETURN_IF_ERROR(CheckRange("top_k", int64_t{message.top_k()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("top_p", message.top_p(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_p", message.min_p(), 0.0, 1.0));
  COPPICE_RETURN_IF_ERROR(CheckEntries("bias_tokens", message.bias_tokens(), 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("bias_values", message.bias_values_size(), message.bias_tokens_size()));
  for (int i = 0; i < message.bias_values_size(); ++i) {
    if (!(message.bias_values(i) <= most)) return BadEntry("bias_values", i, "is not a number");
  }
  return absl::OkStatus();
}

absl::Status CheckDecoding(const proto::Decoding& message) {
  const double most = std::numeric_limits<double>::max();
  if (message.method().empty()) return Bad("method", "is empty");
  COPPICE_RETURN_IF_ERROR(CheckRange("beam_width", int64_t{message.beam_width()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("num_hypotheses", int64_t{message.num_hypotheses()}, 1, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("max_tokens", int64_t{message.max_tokens()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_tokens", int64_t{message.min_tokens()}, 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("length_penalty", message.length_penalty(), -most, most));
  COPPICE_RETURN_IF_ERROR(CheckEntries("stop_ids", message.stop_ids(), 0, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_width", int64_t{message.draft_width()}, 0, kMostBeams));
  COPPICE_RETURN_IF_ERROR(CheckRange("draft_depth", int64_t{message.draft_depth()}, 0, kMostBeams));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("draft_support", int64_t{message.draft_support()}, 1, INT32_MAX));
  COPPICE_RETURN_IF_ERROR(CheckRange("width_threshold", message.width_threshold(), 0.0, most));
  COPPICE_RETURN_IF_ERROR(CheckRange("min_width", int64_t{message.min_width()}, 1, kMostBeams));
  return CheckWarp(message);
}

}  // namespace

proto::Decoding DecodingToMessage(const DecodingParams& params) {
  proto::Decoding message;
  message.set_kind(std::string(DecodingKindName(params.kind)));
  message.set_method(params.method);
  message.set_beam_width(params.beam_width);
  message.set_num_hypotheses(params.num_hypotheses);
  message.set_max_tokens(params.max_tokens);
  message.set_min_tokens(params.min_tokens);
  message.set_seed(params.seed);
  message.set_length_penalty(params.length_penalty);
  message.set_stop_when_full(params.stop_when_full);
  message.set_refill(params.refill);
  Fill(params.stop_ids, message.mutable_stop_ids());
  message.set_temperature(params.warp.temperature);
  message.set_top_k(params.warp.top_k);
  message.set_top_p(params.warp.top_p);
  message.set_min_p(params.warp.min_p);
  message.set_warp_mode(std::string(WarpModeName(params.warp.mode)));
  for (const auto& [token, value] : params.warp.logit_bias) {
    message.add_bias_tokens(token);
    message.add_bias_values(value);
  }
  message.set_draft_width(params.draft_width);
  message.set_draft_depth(params.draft_depth);
  message.set_draft_support(params.draft_support);
  message.set_width_threshold(params.width_threshold);
  message.set_min_width(params.min_width);
  return message;
}

absl::StatusOr<DecodingParams> DecodingFromMessage(const proto::Decoding& message) {
  COPPICE_RETURN_IF_ERROR(CheckDecoding(message));
  DecodingParams params;
  COPPICE_ASSIGN_OR_RETURN(params.kind, ParseDecodingKind(message.kind()));
  params.method = message.method();
  params.beam_width = message.beam_width();
  params.num_hypotheses = message.num_hypotheses();
  params.max_tokens = message.max_tokens();
  params.min_tokens = message.min_tokens();
  params.seed = message.seed();
  params.length_penalty = message.length_penalty();
  params.stop_when_full = message.stop_when_full();
  params.refill = message.refill();
  params.stop_ids = ToVector(message.stop_ids());
  params.warp.temperature = message.temperature();
  params.warp.top_k = message.top_k();
  params.warp.top_p = message.top_p();
  params.warp.min_p = message.min_p();
  COPPICE_ASSIGN_OR_RETURN(params.warp.mode, ParseWarpMode(message.warp_mode()));
  for (int i = 0; i < message.bias_tokens_size(); ++i) {
    params.warp.logit_bias.emplace_back(message.bias_tokens(i), message.bias_values(i));
  }
  params.draft_width = message.draft_width();
  params.draft_depth = message.draft_depth();
  params.draft_support = message.draft_support();
  params.width_threshold = message.width_threshold();
  params.min_width = message.min_width();
  return params;
}

proto::Hypothesis HypothesisToMessage(const Hypothesis& hypothesis) {
  proto::Hypothesis message;
  Fill(hypothesis.tokens, message.mutable_tokens());
  message.set_joint_log_probability(hypothesis.joint_log_probability);
  message.set_score(hypothesis.score);
  message.set_finished(hypothesis.finished);
  const bool stopped = hypothesis.finished && !hypothesis.tokens.empty();
  message.set_stop_token(stopped ? hypothesis.tokens.back() : -1);
  return message;
}

absl::StatusOr<Hypothesis> HypothesisFromMessage(const proto::Hypothesis& message) {
  COPPICE_RETURN_IF_ERROR(CheckEntries("tokens", message.tokens(), 0, INT32_MAX));
  if (std::isnan(message.joint_log_probability())) return Bad("joint_log_probability", "is NaN");
  if (std::isnan(message.score())) return Bad("score", "is NaN");
  Hypothesis hypothesis;
  hypothesis.tokens = ToVector(message.tokens());
  hypothesis.joint_log_probability = message.joint_log_probability();
  hypothesis.score = message.score();
  hypothesis.finished = message.finished();
  return hypothesis;
}

absl::Status CheckTokens(absl::Span<const int32_t> tokens, int vocab_size, const char* field) {
  return CheckEntries(field, tokens, 0, vocab_size);
}

proto::Forest ForestToMessage(const DraftForest& forest) {
  proto::Forest message;
  message.set_num_roots(forest.num_roots);
  Fill(forest.token, message.mutable_token());
  Fill(forest.parent, message.mutable_parent());
  Fill(forest.layer_begin, message.mutable_layer_begin());
  for (const Proposal& proposal : forest.proposals) {
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

absl::StatusOr<DraftForest> ForestFromMessage(const proto::Forest& message, int vocab_size) {
  COPPICE_RETURN_IF_ERROR(CheckRange("num_roots", int64_t{message.num_roots()}, 0, kMostBeams));
  DraftForest forest;
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

proto::RoundState DraftStateToMessage(const DraftState& state,
                                      absl::Span<const int32_t> root_trie) {
  proto::RoundState message;
  Fill(root_trie, message.mutable_root_trie());
  Fill(state.root_score, message.mutable_root_score());
  Fill(state.root_multiplicity, message.mutable_root_multiplicity());
  Fill(state.slot_root, message.mutable_slot_root());
  message.set_layers_committed(state.layers_committed);
  return message;
}

absl::StatusOr<DraftState> DraftStateFromMessage(const proto::RoundState& message,
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
      CheckEntries("root_multiplicity", message.root_multiplicity(), 1, kMostBeams + 1));
  COPPICE_RETURN_IF_ERROR(CheckEntries("slot_root", message.slot_root(), 0, roots));
  for (int i = 0; i < message.root_score_size(); ++i) {
    if (!std::isfinite(message.root_score(i))) return BadEntry("root_score", i, "is not finite");
  }
  std::vector<uint64_t> hash(trie_parent.size());
  for (size_t i = 0; i < trie_parent.size(); ++i) {
    const int32_t parent = trie_parent[i];
    if (parent < -1 || parent >= static_cast<int64_t>(i)) {
      return BadEntry("trie_parent", i, absl::StrCat(parent, " is not an earlier entry or -1"));
    }
    hash[i] = ExtendHash(parent < 0 ? stable_hash : hash[parent], trie_token[i]);
  }
  DraftState state;
  for (int32_t entry : message.root_trie()) {
    state.root_hash.push_back(entry < 0 ? stable_hash : hash[entry]);
  }
  state.root_score = ToVector(message.root_score());
  state.root_multiplicity = ToVector(message.root_multiplicity());
  state.slot_root = ToVector(message.slot_root());
  state.layers_committed = message.layers_committed();
  return state;
}

proto::StepPlan BatchToMessage(uint64_t step, const ForwardBatch& batch) {
  proto::StepPlan message;
  message.set_step(step);
  Fill(batch.token, message.mutable_token());
  Fill(batch.position, message.mutable_position());
  Fill(batch.slot, message.mutable_slot());
  Fill(batch.row_table, message.mutable_row_table());
  Fill(batch.prefix_len, message.mutable_prefix_len());
  Fill(batch.chain_begin, message.mutable_chain_begin());
  Fill(batch.chain, message.mutable_chain());
  Fill(batch.table_begin, message.mutable_table_begin());
  Fill(batch.table, message.mutable_table());
  Fill(batch.logits_rows, message.mutable_logits_rows());
  for (const KvCopy& copy : batch.commits) {
    message.add_commit_source(copy.source);
    message.add_commit_destination(copy.destination);
  }
  return message;
}

namespace {

// Position by position: what the row sees must be what it says, and end with the slot that it
// writes.
absl::Status CheckRow(const ForwardBatch& batch, const PlanLimits& limits, int row) {
  const int table = batch.row_table[row];
  const int64_t prefix = batch.prefix_len[row];
  const int32_t chain_end = batch.chain_begin[row + 1];
  const int64_t chain = chain_end - batch.chain_begin[row];
  const int64_t held = batch.table_begin[table + 1] - batch.table_begin[table];
  if (prefix > held * limits.block_size) {
    return BadEntry("prefix_len", row, absl::StrCat(prefix, " tokens in ", held, " blocks"));
  }
  if (prefix + chain != int64_t{batch.position[row]} + 1) {
    return BadEntry("position", row,
                    absl::StrCat(batch.position[row], " after ", prefix, " + ", chain,
                                 " tokens, itself included"));
  }
  int32_t last;
  if (chain > 0) {
    last = batch.chain[chain_end - 1];
  } else {
    const int64_t at = prefix - 1;
    last = batch.table[batch.table_begin[table] + at / limits.block_size] * limits.block_size +
           static_cast<int32_t>(at % limits.block_size);
  }
  if (batch.slot[row] == last) return absl::OkStatus();
  return BadEntry("slot", row, absl::StrCat(batch.slot[row], ", but its context ends in ", last));
}

absl::Status CheckUnique(absl::string_view field, std::vector<int32_t> slots) {
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice == slots.end()) return absl::OkStatus();
  return Bad(field, absl::StrCat("slot ", *twice, " is written twice"));
}

absl::Status CheckCommits(const ForwardBatch& batch) {
  if (batch.commits.empty()) return absl::OkStatus();
  std::vector<int32_t> sources, destinations;
  for (const KvCopy& copy : batch.commits) {
    sources.push_back(copy.source);
    destinations.push_back(copy.destination);
  }
  std::sort(destinations.begin(), destinations.end());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::binary_search(destinations.begin(), destinations.end(), sources[i])) {
      return BadEntry("commit_source", i, absl::StrCat(sources[i], " is a destination too"));
    }
  }
  return CheckUnique("commit_destination", std::move(destinations));
}

absl::Status CheckPlanArrays(const proto::StepPlan& plan, const PlanLimits& limits) {
  const size_t rows = plan.token_size();
  const int64_t slots = limits.pool_blocks * limits.block_size;
  if (rows > static_cast<size_t>(limits.max_rows)) {
    return Bad("token", absl::StrCat(rows, " rows, at most ", limits.max_rows));
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("token", plan.token(), 0, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLength("position", plan.position_size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("position", plan.position(), 0, limits.max_positions));
  COPPICE_RETURN_IF_ERROR(CheckLength("slot", plan.slot_size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("slot", plan.slot(), 0, slots));
  COPPICE_RETURN_IF_ERROR(CheckLength("row_table", plan.row_table_size(), rows));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("row_table", plan.row_table(), 0, int64_t{plan.table_begin_size()} - 1));
  COPPICE_RETURN_IF_ERROR(CheckLength("prefix_len", plan.prefix_len_size(), rows));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("prefix_len", plan.prefix_len(), 0, int64_t{limits.max_positions} + 1));
  COPPICE_RETURN_IF_ERROR(CheckLength("chain_begin", plan.chain_begin_size(), rows + 1));
  COPPICE_RETURN_IF_ERROR(CheckOffsets("chain_begin", plan.chain_begin(), plan.chain_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("chain", plan.chain(), 0, slots));
  COPPICE_RETURN_IF_ERROR(CheckOffsets("table_begin", plan.table_begin(), plan.table_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("table", plan.table(), 0, limits.pool_blocks));
  COPPICE_RETURN_IF_ERROR(CheckEntries("logits_rows", plan.logits_rows(), 0, rows));
  for (int i = 1; i < plan.logits_rows_size(); ++i) {
    if (plan.logits_rows(i) <= plan.logits_rows(i - 1)) {
      return BadEntry("logits_rows", i, "does not ascend");
    }
  }
  COPPICE_RETURN_IF_ERROR(
      CheckLength("commit_destination", plan.commit_destination_size(), plan.commit_source_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("commit_source", plan.commit_source(), 0, slots));
  return CheckEntries("commit_destination", plan.commit_destination(), 0, slots);
}

}  // namespace

absl::StatusOr<ForwardBatch> BatchFromMessage(const proto::StepPlan& message,
                                              const PlanLimits& limits) {
  COPPICE_RETURN_IF_ERROR(CheckPlanArrays(message, limits));
  ForwardBatch batch;
  batch.token = ToVector(message.token());
  batch.position = ToVector(message.position());
  batch.slot = ToVector(message.slot());
  batch.row_table = ToVector(message.row_table());
  batch.prefix_len = ToVector(message.prefix_len());
  batch.chain_begin = ToVector(message.chain_begin());
  batch.chain = ToVector(message.chain());
  batch.table_begin = ToVector(message.table_begin());
  batch.table = ToVector(message.table());
  batch.logits_rows = ToVector(message.logits_rows());
  for (int i = 0; i < message.commit_source_size(); ++i) {
    batch.commits.push_back({message.commit_source(i), message.commit_destination(i)});
  }
  for (int row = 0; row < batch.rows(); ++row) {
    COPPICE_RETURN_IF_ERROR(CheckRow(batch, limits, row));
  }
  COPPICE_RETURN_IF_ERROR(CheckUnique("slot", batch.slot));
  COPPICE_RETURN_IF_ERROR(CheckCommits(batch));
  return batch;
}

}  // namespace coppice
