// The size of a request's drafts, from the given width, depth and tree and its method's form
// (method.h). Admission, the forest sizer and the draft node all use these numbers. Pure.
#pragma once

#include <optional>

#include "decoding/params.h"
#include "decoding/topology.h"

namespace coppice::decoding {

struct DraftSize {
  bool drafts = false;  // false: no speculation, or a method without drafts
  bool chosen = false;  // the request names width, depth or tree
  int width = 0;        // nodes of the first layer, if request or form prescribe them; 0 = free
  int depth = 0;        // layers, if the request prescribes them; 0 = free
  int beams = 0;  // rows of a level of the draft model, if they differ from the nodes of a layer
  std::optional<Topology> tree;  // the static tree; absent: as many nodes in every layer

  // The most nodes that are sent for a draft of this shape.
  int Nodes(int shape_width, int shape_depth) const;
  // The most layers of this width whose nodes fit in max_nodes.
  int DeepestWithin(int shape_width, int max_nodes) const;
};

// Empty (no drafts) if no method serves the parameters.
DraftSize DraftSizeOf(const DecodingParams& params);

}  // namespace coppice::decoding
