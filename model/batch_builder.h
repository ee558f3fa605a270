// Packs rows of many sequences into one ForwardBatch, from the block manager's tries. Used by
// worker/verify_step and draft_node/forest_builder. One builder per step.
#pragma once

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/forward_batch.h"
#include "model/block_manager.h"

namespace coppice {

class BatchBuilder {
 public:
  // *blocks must outlive the builder.
  explicit BatchBuilder(const BlockManager* blocks);

  // Prefill rows: `tokens` are the last tokens.size() tokens of the sequence's prefix, in `slots`
  // (what AppendPrefix returned). No logits.
  void AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                     absl::Span<const int32_t> slots);
  // The row of a trie node. With logits: returns its place in the logits of the pass; without: -1.
  int AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token, bool logits);
  void AddCommits(absl::Span<const KvCopy> copies);

  int rows() const { return batch_.rows(); }
  bool empty() const { return batch_.token.empty(); }
  ForwardBatch Take() { return std::move(batch_); }

 private:
  int TableOf(SequenceHandle sequence);

  const BlockManager* blocks_;
  ForwardBatch batch_;
  SequenceHandle last_sequence_ =
      -1;  // rows of a sequence come together, so one table is enough to remember
};

}  // namespace coppice
