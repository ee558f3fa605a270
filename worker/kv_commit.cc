#include "worker/kv_commit.h"

#include "base/check.h"

namespace coppice::worker {

bool CommitVerdict(const decoding::Verdict& verdict, absl::Span<const model::KvNode> node_kv,
                   Sequence* sequence, model::BlockManager* blocks, std::vector<KvCopy>* copies) {
  for (size_t i = 0; i < node_kv.size(); ++i) {
    if (verdict.node_path[i] != decoding::kNoPath)
      sequence->SetKv(verdict.node_path[i], node_kv[i]);
  }
  const decoding::PathTree& paths = sequence->decoder->paths();
  std::vector<model::KvNode> leaves;  // for each root, the last token on its path that has KV
  // Parents of the roots; a root itself is a row of the next step.
  std::vector<model::KvNode> parents;
  for (decoding::PathId root : sequence->decoder->roots()) {
    const model::KvNode parent = sequence->KvOf(paths.parent(root));
    COPPICE_CHECK_MSG(parent != model::kNoKv, "the parent of a root has no KV");
    parents.push_back(parent);
    leaves.push_back(sequence->KvOf(root) == model::kNoKv ? parent : sequence->KvOf(root));
  }
  blocks->Retain(sequence->kv, leaves);
  const auto moved = blocks->Commit(sequence->kv, parents, copies);
  if (!moved.ok()) return false;
  // Paths that moved to the prefix: the ancestors of the roots from the common one upwards.
  decoding::PathId common = paths.CommonAncestor([&] {
    std::vector<decoding::PathId> above;
    for (decoding::PathId root : sequence->decoder->roots()) above.push_back(paths.parent(root));
    return above;
  }());
  for (; common != decoding::kNoPath && sequence->KvOf(common) != model::kPrefixEnd;
       common = paths.parent(common)) {
    sequence->SetKv(common, model::kPrefixEnd);
  }
  return true;
}

}  // namespace coppice::worker
