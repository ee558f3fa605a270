#include "worker/kv_commit.h"

#include "base/check.h"
#include "base/status.h"

namespace coppice {

absl::Status CommitVerdict(const Verdict& verdict, absl::Span<const KvNode> node_kv,
                           Sequence* sequence, BlockManager* blocks, std::vector<KvCopy>* copies) {
  for (size_t i = 0; i < node_kv.size(); ++i) {
    if (verdict.node_path[i] >= 0) sequence->SetKv(verdict.node_path[i], node_kv[i]);
  }
  const PathTree& paths = sequence->decoder->paths();
  std::vector<KvNode> leaves;   // last tokens with KV on the way to each root
  std::vector<KvNode> parents;  // of the roots: a root itself is a row of the next pass
  for (PathId root : sequence->decoder->roots()) {
    const KvNode parent = sequence->KvOf(paths.parent(root));
    COPPICE_CHECK_MSG(parent != Sequence::kNoKv, "the parent of a root has no KV");
    parents.push_back(parent);
    leaves.push_back(sequence->KvOf(root) == Sequence::kNoKv ? parent : sequence->KvOf(root));
  }
  blocks->Retain(sequence->kv, leaves);
  const auto moved = blocks->Commit(sequence->kv, parents, copies);
  if (!moved.ok()) return moved.status();
  // Paths that moved to the prefix: the ancestors of the roots from the common one upwards.
  PathId common = paths.CommonAncestor([&] {
    std::vector<PathId> above;
    for (PathId root : sequence->decoder->roots()) above.push_back(paths.parent(root));
    return above;
  }());
  for (; common >= 0 && sequence->KvOf(common) != kPrefixEnd; common = paths.parent(common)) {
    sequence->SetKv(common, kPrefixEnd);
  }
  return absl::OkStatus();
}

}  // namespace coppice
