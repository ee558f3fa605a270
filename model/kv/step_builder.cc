#include "model/kv/step_builder.h"

#include <utility>

#include "base/check.h"

namespace coppice::model {

void StepBuilder::ExtendSegment(SequenceHandle sequence) {
  if (sequence != last_sequence_) {
    last_sequence_ = sequence;
    const auto table = blocks_->block_table(sequence);
    plan_.table.insert(plan_.table.end(), table.begin(), table.end());
    plan_.table_begin.push_back(static_cast<int32_t>(plan_.table.size()));
    plan_.segments.push_back({plan_.rows(), 0, blocks_->prefix_length(sequence)});
  }
  ++plan_.segments.back().rows;
}

// Call it after the chain of the row has been appended.
void StepBuilder::AddRow(TokenId token, int position, int32_t slot) {
  plan_.token.push_back(token);
  plan_.position.push_back(position);
  plan_.slot.push_back(slot);
  if (state_columns_ > 0) plan_.state.push_back(-1);
  if (has_blocks_) plan_.rope_position.push_back(position);
  plan_.chain_begin.push_back(static_cast<int32_t>(plan_.chain.size()));
}

void StepBuilder::AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                                absl::Span<const int32_t> slots) {
  COPPICE_CHECK(tokens.size() == slots.size());
  const int first = blocks_->prefix_length(sequence) - static_cast<int>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ExtendSegment(sequence);
    AddRow(tokens[i], first + static_cast<int>(i), slots[i]);
  }
}

int StepBuilder::AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                               absl::Span<const int32_t> slots,
                               absl::FunctionRef<RowNeed(int)> need_of) {
  const int first_row = plan_.rows(), first_need = static_cast<int>(plan_.needs.size());
  AddPrefixRows(sequence, tokens, slots);
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    RowNeed need = need_of(i);
    need.row = first_row + i;
    plan_.needs.push_back(need);
  }
  return first_need;
}

void StepBuilder::AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token) {
  ExtendSegment(sequence);
  const int before = static_cast<int>(plan_.chain.size());
  blocks_->AppendChain(sequence, node, &plan_.chain);
  const int chain = static_cast<int>(plan_.chain.size()) - before;
  AddRow(token, blocks_->prefix_length(sequence) + chain - 1, blocks_->slot(sequence, node));
}

int StepBuilder::AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token, RowNeed need) {
  need.row = plan_.rows();
  AddNodeRow(sequence, node, token);
  plan_.needs.push_back(need);
  return static_cast<int>(plan_.needs.size()) - 1;
}

int StepBuilder::AddBlockRows(SequenceHandle sequence, absl::Span<const KvNode> nodes,
                              absl::Span<const TokenId> tokens, absl::Span<const RowNeed> needs) {
  COPPICE_CHECK(nodes.size() == tokens.size() && needs.size() <= nodes.size());
  if (!std::exchange(has_blocks_, true)) plan_.rope_position = plan_.position;
  const auto first_need = static_cast<int>(plan_.needs.size());
  std::vector<int32_t> chain;
  blocks_->AppendChain(sequence, nodes.back(), &chain);
  const size_t above = chain.size() - nodes.size();
  const int prefix = blocks_->prefix_length(sequence);
  for (size_t i = 0; i < nodes.size(); ++i) {
    ExtendSegment(sequence);
    const size_t own = above + i;
    for (size_t c = 0; c < chain.size(); ++c) {
      if (c != own) plan_.chain.push_back(chain[c]);
    }
    plan_.chain.push_back(chain[own]);
    if (i + needs.size() >= nodes.size()) {
      plan_.needs.push_back(needs[i + needs.size() - nodes.size()]);
      plan_.needs.back().row = plan_.rows();
    }
    AddRow(tokens[i], prefix + static_cast<int>(chain.size()) - 1, chain[own]);
    plan_.rope_position.back() = prefix + static_cast<int>(own);
  }
  return first_need;
}

void StepBuilder::SetState(int row, absl::Span<const uint16_t> state) {
  COPPICE_CHECK(state_columns_ > 0 && static_cast<int>(state.size()) == state_columns_);
  plan_.state[row] = static_cast<int32_t>(plan_.states.size() / state.size());
  plan_.states.insert(plan_.states.end(), state.begin(), state.end());
}

StepBuilder::BiasRange StepBuilder::AddBias(absl::Span<const std::pair<TokenId, double>> bias) {
  const auto begin = static_cast<int32_t>(plan_.bias.size());
  for (const auto& [token, nats] : bias) {
    if (token >= 0 && token < vocab_size_) plan_.bias.emplace_back(token, nats);
  }
  return {begin, static_cast<int32_t>(plan_.bias.size())};
}

}  // namespace coppice::model
