// Where decoding and model meet on the worker: the rows of a sequence's roots and forest in a pass,
// and the decoder's verdict from the logits.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/forest.h"
#include "model/batch_builder.h"
#include "model/block_manager.h"
#include "worker/sequence.h"

namespace coppice {

// What one sequence has in a pass. Rows are numbered as in DraftForest: roots first, then nodes.
struct VerifyRows {
  std::vector<KvNode> root_kv;  // [roots]
  std::vector<KvNode> node_kv;  // [forest nodes]
  std::vector<int> logits_row;  // [roots + forest nodes]: place in the logits of the pass, -1 =
                                // Sequence::root_logits
};

// Takes KV slots for the roots and the forest of `sequence`. When the pool has no room for the
// forest, the forest is given up (a plain step); ResourceExhausted when there is none even for the
// roots.
absl::StatusOr<VerifyRows> ReserveRows(Sequence* sequence, BlockManager* blocks);

// Adds one row with logits for every forest node and every root; with a forest, roots whose logits
// are known need none.
void AppendRows(const Sequence& sequence, BatchBuilder* batch, VerifyRows* rows);

// Runs the decoder on the pass's logits, [rows with logits, vocab_size], and keeps those of the new
// roots that were nodes. InvalidArgument names row and token of a logit that is NaN or +inf, if one
// was read; then the verdict means nothing and the sequence must end.
absl::StatusOr<Verdict> Verify(const VerifyRows& rows, absl::Span<const float> logits,
                               int vocab_size, HostThreads* threads, Sequence* sequence);

}  // namespace coppice
