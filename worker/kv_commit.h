// After a verdict: the KV of what lives on is kept, what all live roots share moves to the stable
// prefix, the rest of the scratch is freed (docs/architecture.md 4).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "decoding/forest.h"
#include "model/block_manager.h"
#include "worker/sequence.h"

namespace coppice::worker {

// node_kv[i]: the trie node of forest node i in the pass just run. Copies to do before the next
// pass are appended.
absl::Status CommitVerdict(const decoding::Verdict& verdict,
                           absl::Span<const model::KvNode> node_kv, Sequence* sequence,
                           model::BlockManager* blocks, std::vector<KvCopy>* copies);

}  // namespace coppice::worker
