// The size of a request's drafts, from the given width, depth and tree and its method's form
// (method.h). Admission, the forest sizer and the draft node all use these numbers. Pure.
#pragma once

#include <optional>

#include "decoding/params.h"
#include "decoding/topology.h"

namespace coppice::decoding {

struct DraftSize {
  bool drafts = false;  // false: plain, or a method that drafts nothing
  bool chosen = false;  // the request names width, depth or tree
  int width = 0;        // nodes of the first layer that request or form fix; 0 = free
  int depth = 0;        // layers that the request fixes; 0 = free
  int beams = 0;        // rows that the draft model evaluates in a level, when not those of a layer
  std::optional<Topology> tree;  // the static tree; absent: as many nodes in every layer

  // The most nodes that a draft of this shape ships.
  int Nodes(int shape_width, int shape_depth) const;
  // The most layers of this width whose nodes fit in max_nodes.
  int DeepestWithin(int shape_width, int max_nodes) const;
};

// Nothing where no method serves the parameters.
DraftSize DraftSizeOf(const DecodingParams& params);

}  // namespace coppice::decoding
