#include "worker/preemption.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace coppice::worker {
namespace {

using decoding::PathId;

std::vector<PathId> ParentsOfRoots(const decoding::BeamDecoder& decoder) {
  std::vector<PathId> parents;
  for (const PathId root : decoder.roots()) parents.push_back(decoder.paths().parent(root));
  return parents;
}

// The paths from each of `ends` up to `common`, which is not among them; parents first.
std::vector<PathId> PathsBelow(const decoding::PathTree& paths, absl::Span<const PathId> ends,
                               PathId common) {
  std::vector<PathId> below;
  for (PathId path : ends) {
    for (; path != common; path = paths.parent(path)) below.push_back(path);
  }
  std::sort(below.begin(), below.end());  // a path is made after its parent
  below.erase(std::unique(below.begin(), below.end()), below.end());
  return below;
}

}  // namespace

void Preempt(Sequence* sequence, model::BlockManager* blocks) {
  blocks->Close(sequence->kv);
  sequence->kv = -1;
  sequence->kv_of_path.clear();
  sequence->known_roots.clear();
  sequence->reread.clear();
  sequence->reread_paths.clear();
  sequence->reread_done = 0;
  sequence->draft_came = sequence->suffix_draft = false;
  const decoding::BeamDecoder& decoder = *sequence->decoder;
  sequence->forest = decoding::DraftForest::Empty(static_cast<int>(decoder.roots().size()));
  if (decoder.layers_committed() == 0) return;  // it was still reading its prompt

  const decoding::PathTree& paths = decoder.paths();
  const std::vector<PathId> parents = ParentsOfRoots(decoder);
  const PathId common = paths.CommonAncestor(parents);
  sequence->reread_paths = PathsBelow(paths, parents, common);
  sequence->reread = sequence->prompt;
  const std::vector<TokenId> shared = paths.Tokens(common);
  sequence->reread.insert(sequence->reread.end(), shared.begin(), shared.end());
  // As the last token of a prompt, the last one here belongs to no prefix.
  sequence->reread.push_back(sequence->reread_paths.empty()
                                 ? paths.token(decoder.roots().front())
                                 : paths.token(sequence->reread_paths.front()));
  for (PathId path = common; path != decoding::kNoPath; path = paths.parent(path))
    sequence->SetKv(path, model::kPrefixEnd);
}

absl::StatusOr<model::KvNode> ReserveReread(Sequence* sequence, model::BlockManager* blocks) {
  const decoding::PathTree& paths = sequence->decoder->paths();
  const PathId path = sequence->reread_paths[sequence->reread_done];
  COPPICE_ASSIGN_OR_RETURN(
      const model::KvNode node,
      blocks->AddNode(sequence->kv, sequence->KvOf(paths.parent(path)), paths.token(path)));
  sequence->SetKv(path, node);
  ++sequence->reread_done;
  return node;
}

Sequence* FirstToPreempt(const std::vector<Sequence*>& running) {
  absl::flat_hash_map<absl::string_view, int> of_client;
  for (const Sequence* sequence : running) ++of_client[sequence->client];
  const auto keeps_longer = [&](const Sequence* a, const Sequence* b) {
    const bool alone = of_client[a->client] == 1, other_alone = of_client[b->client] == 1;
    const bool comparable =
        a->priority == b->priority && a->often_preempted() == b->often_preempted();
    return comparable && alone != other_alone ? alone : Outranks(*a, *b);
  };
  const auto last = std::max_element(running.begin(), running.end(), keeps_longer);
  return last == running.end() ? nullptr : *last;
}

}  // namespace coppice::worker
