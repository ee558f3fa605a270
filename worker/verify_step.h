// Joins decoding and model on the worker: adds the rows of a sequence's roots and forest to a step,
// with what the decoder needs of each, and has the decoder decide from the result.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "decoding/forest.h"
#include "kernels/backend.h"
#include "model/kv/block_manager.h"
#include "model/kv/step_builder.h"
#include "worker/sequence.h"

namespace coppice::worker {

// The rows of one sequence in a step, numbered as in DraftForest: roots first, then nodes.
struct VerifyRows {
  std::vector<model::KvNode> root_kv;  // [roots]
  std::vector<model::KvNode> node_kv;  // [forest nodes]
  std::vector<int> need;  // [roots + forest nodes]: index in StepRows, -1 = a known root
};

// Takes KV slots for the roots and the forest of `sequence`. Gives up the forest (a plain round)
// when the pool has no room for it. ResourceExhausted when there is no room even for the roots.
absl::StatusOr<VerifyRows> ReserveRows(Sequence* sequence, model::BlockManager* blocks);

// Adds one row for every root and forest node, with what the decoder needs of it. Known roots get
// no row when there is a forest.
void AppendRows(const Sequence& sequence, model::StepBuilder* step, VerifyRows* rows);

// Runs the decoder on the rows of the step. Keeps the rows of new roots that were forest nodes.
// InvalidArgument names row and token of a logit read that is NaN or +inf; then there is no valid
// verdict and the sequence must end.
absl::StatusOr<decoding::Verdict> Verify(const VerifyRows& rows, const kernels::StepRows& step,
                                         int vocab_size, HostThreads* threads, Sequence* sequence);

}  // namespace coppice::worker
