// Preemption: when KV runs short, a running sequence gives its blocks back, and they are computed
// again later. Everything that was decided stays: the decoder, the scores, what was reported, the
// session with the draft node. The backend is batch-invariant, so the sequence goes on with the same
// bits. Called by the engine.
#pragma once

#include <vector>

#include "model/kv/block_manager.h"
#include "worker/sequence.h"

namespace coppice::worker {

// Closes the sequence's KV; full blocks of its prefix stay in the prefix cache. Sets what it has to
// read again: the tokens that all its beams share, as a prefix, and the others as nodes of the trie
// (Sequence::reread). Gives up its forest and the rows of known roots, whose KV is gone.
void Preempt(Sequence* sequence, model::BlockManager* blocks);

// Adds the node of the next path that a preempted sequence has to read again, whose parent has KV.
// ResourceExhausted when the pool is out of blocks; then nothing has changed.
absl::StatusOr<model::KvNode> ReserveReread(Sequence* sequence, model::BlockManager* blocks);

// The sequence that loses its KV first, of those that have some: the last by Outranks; of a priority,
// clients that have only one come after all others. The first one in this order always goes on.
Sequence* FirstToPreempt(const std::vector<Sequence*>& running);

}  // namespace coppice::worker
