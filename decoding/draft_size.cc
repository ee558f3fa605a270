#include "decoding/draft_size.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "decoding/method.h"

namespace coppice::decoding {

int DraftSize::Nodes(int shape_width, int shape_depth) const {
  if (tree) return tree->Nodes(shape_depth);
  return static_cast<int>(
      std::min<int64_t>(int64_t{shape_width} * shape_depth, std::numeric_limits<int>::max()));
}

int DraftSize::DeepestWithin(int shape_width, int max_nodes) const {
  if (shape_width <= 0) return 0;
  if (!tree) return std::max(0, max_nodes / shape_width);
  int depth = 0;
  while (Nodes(shape_width, depth + 1) <= max_nodes && (tree->open || depth < tree->depth())) {
    ++depth;
  }
  return depth;
}

DraftSize DraftSizeOf(const DecodingParams& params) {
  DraftSize size;
  const absl::StatusOr<const MethodRow*> method = ResolveMethod(params);
  if (params.plain || !method.ok() || (*method)->form == DraftForm::kNone) return size;
  const MethodRow* row = *method;
  size.drafts = true;
  const bool names_tree = row->reads("draft_tree") && !params.draft_tree.empty();
  size.chosen = params.draft_width > 0 || params.draft_depth > 0 || names_tree;
  size.width = row->form == DraftForm::kPath ? 1 : params.draft_width;
  if (size.width == 0 && row->most_children > 0) {
    size.width = std::min(row->most_children, AutoDraftWidth(params.beam_width));
  }
  size.depth = params.draft_depth;
  if (row->reads("draft_beams")) size.beams = params.draft_beams;
  if (!names_tree) return size;
  auto tree = ParseTopology(params.draft_tree);
  if (!tree.ok()) return size;
  size.width = tree->Nodes(1);
  size.depth = tree->open ? 0 : tree->depth();
  size.tree = *std::move(tree);
  return size;
}

}  // namespace coppice::decoding
