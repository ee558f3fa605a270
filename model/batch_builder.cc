#include "model/batch_builder.h"

#include "base/check.h"

namespace coppice {

BatchBuilder::BatchBuilder(const BlockManager* blocks) : blocks_(blocks) {
  batch_.chain_begin.push_back(0);
  batch_.table_begin.push_back(0);
}

int BatchBuilder::TableOf(SequenceHandle sequence) {
  if (sequence != last_sequence_) {
    last_sequence_ = sequence;
    const auto table = blocks_->block_table(sequence);
    batch_.table.insert(batch_.table.end(), table.begin(), table.end());
    batch_.table_begin.push_back(static_cast<int32_t>(batch_.table.size()));
  }
  return static_cast<int>(batch_.table_begin.size()) - 2;
}

void BatchBuilder::AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                                 absl::Span<const int32_t> slots) {
  COPPICE_CHECK(tokens.size() == slots.size());
  const int table = TableOf(sequence);
  const int first = blocks_->prefix_length(sequence) - static_cast<int>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int position = first + static_cast<int>(i);
    batch_.token.push_back(tokens[i]);
    batch_.position.push_back(position);
    batch_.slot.push_back(slots[i]);
    batch_.row_table.push_back(table);
    batch_.prefix_len.push_back(position + 1);
    batch_.chain_begin.push_back(static_cast<int32_t>(batch_.chain.size()));
  }
}

int BatchBuilder::AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token, bool logits) {
  const int table = TableOf(sequence);
  const int prefix = blocks_->prefix_length(sequence);
  const size_t chain_start = batch_.chain.size();
  blocks_->AppendChain(sequence, node, &batch_.chain);
  const int chain = static_cast<int>(batch_.chain.size() - chain_start);
  batch_.token.push_back(token);
  batch_.position.push_back(prefix + chain - 1);
  batch_.slot.push_back(blocks_->slot(sequence, node));
  batch_.row_table.push_back(table);
  batch_.prefix_len.push_back(prefix);
  batch_.chain_begin.push_back(static_cast<int32_t>(batch_.chain.size()));
  if (!logits) return -1;
  batch_.logits_rows.push_back(batch_.rows() - 1);
  return static_cast<int>(batch_.logits_rows.size()) - 1;
}

void BatchBuilder::AddCommits(absl::Span<const KvCopy> copies) {
  batch_.commits.insert(batch_.commits.end(), copies.begin(), copies.end());
}

}  // namespace coppice
