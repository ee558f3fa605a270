// Packs rows of many sequences into one StepPlan, from the block manager's tries. Used by
// worker/verify_step, worker/step_planner and draft_node/ (forest_builder, draft_session). Made by
// ModelRunner::NewStep, one per step. Thread-compatible.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "model/kv/block_manager.h"
#include "plan/step_plan.h"

namespace coppice::model {

class StepBuilder {
 public:
  // *blocks must outlive the builder.
  // state_columns: of StepPlan::states; 0: rows have none.
  StepBuilder(BlockManager* blocks, int vocab_size, int state_columns = 0)
      : blocks_(blocks), vocab_size_(vocab_size), state_columns_(state_columns) {}

  // Prefill rows: `tokens` are the last tokens of the sequence's prefix, `slots` what AppendPrefix
  // returned for them. Only their KV is computed, no logits.
  void AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                     absl::Span<const int32_t> slots);
  // The same with what is needed of the logits of each row: need_of(i) of tokens[i]. Sets their
  // rows. Returns the index of the first need in StepRows.
  int AddPrefixRows(SequenceHandle sequence, absl::Span<const TokenId> tokens,
                    absl::Span<const int32_t> slots, absl::FunctionRef<RowNeed(int)> need_of);
  // The row of a trie node. Only its KV is computed, no logits.
  void AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token);
  // The row of a trie node with what is needed of its logits. Sets need.row. Returns the index of
  // the need in StepRows.
  int AddNodeRow(SequenceHandle sequence, KvNode node, TokenId token, RowNeed need);

  // The rows of a block (ModelConfig::block): nodes that are a chain, first the child of `above`, with
  // their tokens. Each sees what is above and all the others. needs[i] of nodes[i], as above; those
  // before have none if there are fewer. Returns the index of the first need in StepRows.
  int AddBlockRows(SequenceHandle sequence, absl::Span<const KvNode> nodes,
                   absl::Span<const TokenId> tokens, absl::Span<const RowNeed> needs);

  // The state of a row that has been added: [state_columns] bf16. A row without one takes that of
  // the slot before its own in its chain.
  void SetState(int row, absl::Span<const uint16_t> state);

  // Adds a bias that several needs may share: each names the range. Tokens outside the vocabulary
  // are left out.
  struct BiasRange {
    int32_t begin = 0, end = 0;
  };
  BiasRange AddBias(absl::Span<const std::pair<TokenId, double>> bias);

  int rows() const { return plan_.rows(); }
  bool empty() const { return plan_.token.empty(); }
  // With the pages that blocks have got and lost since the last plan was taken: plans must be run in
  // the order in which they are taken.
  StepPlan Take() {
    plan_.pages = blocks_->TakePageChanges();
    return std::move(plan_);
  }

 private:
  // Rows of a sequence must be added together: a segment ends where another sequence begins.
  void ExtendSegment(SequenceHandle sequence);
  void AddRow(TokenId token, int position, int32_t slot);

  BlockManager* blocks_;
  int vocab_size_;
  int state_columns_;
  StepPlan plan_;
  bool has_blocks_ = false;  // the plan has rows of blocks
  SequenceHandle last_sequence_ = -1;
};

}  // namespace coppice::model
