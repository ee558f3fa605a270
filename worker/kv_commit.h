// After a verdict: keeps the KV of the live beams, moves what all live roots share to the stable
// prefix, and frees the rest of the scratch (docs/architecture.md 4).
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/forest.h"
#include "model/kv/block_manager.h"
#include "worker/sequence.h"

namespace coppice::worker {

// node_kv[i]: the trie node of forest node i in the last pass. Appends the copies that must be done
// before the next pass. False: the pool is out of blocks. Then the tokens that the roots share stay
// where they are, for a later commit; the sequence can go on.
bool CommitVerdict(const decoding::Verdict& verdict, absl::Span<const model::KvNode> node_kv,
                   Sequence* sequence, model::BlockManager* blocks, std::vector<KvCopy>* copies);

}  // namespace coppice::worker
