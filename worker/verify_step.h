// Where decoding and model meet on the worker: the rows of a sequence's roots and forest in a step
// with what is needed of each, and the decoder's verdict from what came back.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "decoding/forest.h"
#include "kernels/backend.h"
#include "model/block_manager.h"
#include "model/step_builder.h"
#include "worker/sequence.h"

namespace coppice::worker {

// What one sequence has in a step. Rows are numbered as in DraftForest: roots first, then nodes.
struct VerifyRows {
  std::vector<model::KvNode> root_kv;  // [roots]
  std::vector<model::KvNode> node_kv;  // [forest nodes]
  std::vector<int> need;  // [roots + forest nodes]: place in StepRows, -1 = a known root
};

// Takes KV slots for the roots and the forest of `sequence`. When the pool has no room for the
// forest, the forest is given up (a plain step); ResourceExhausted when there is none even for the
// roots.
absl::StatusOr<VerifyRows> ReserveRows(Sequence* sequence, model::BlockManager* blocks);

// Adds one row for every forest node and every root, with what the decoder needs of it; with a
// forest, known roots need no row.
void AppendRows(const Sequence& sequence, model::StepBuilder* step, VerifyRows* rows);

// Runs the decoder on the rows of the step, and keeps those of the new roots that were nodes.
// InvalidArgument names row and token of a logit that is NaN or +inf, if one was read; then the
// verdict means nothing and the sequence must end.
absl::StatusOr<decoding::Verdict> Verify(const VerifyRows& rows, const kernels::StepRows& step,
                                         int vocab_size, HostThreads* threads, Sequence* sequence);

}  // namespace coppice::worker
