// Which nodes of a draft end their path: those of a stop id, and those at which the format of the
// output is complete. Such a node gets no row and no children. Used by drafters. The paths of a
// draft that does not know the format end only with stop ids. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "base/output_format.h"
#include "base/types.h"
#include "decoding/forest.h"
#include "decoding/params.h"

namespace coppice::decoding {

class DraftEnds {
 public:
  using State = OutputFormat::State;

  explicit DraftEnds(const DecodingParams& params);

  // State of root r; 0 if only stop ids end a path.
  State Root(const DraftState& state, size_t r) const;
  // State of the child of a node in `state`.
  State Next(State state, TokenId token) const {
    return format_ == nullptr ? 0 : format_->Next(state, token);
  }
  // The child by `token` of a node in `state` ends its path.
  bool Has(State state, TokenId token) const {
    return IsStopId(stop_ids_, token) ||
           (format_ != nullptr && format_->Complete(format_->Next(state, token)));
  }

 private:
  std::vector<TokenId> stop_ids_;
  std::shared_ptr<const OutputFormat> format_;  // nullptr: none, or it has no complete states
};

}  // namespace coppice::decoding
