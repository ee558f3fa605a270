// Which tokens end the beams of a layer: stop ids, and tokens that complete a stop string. For the
// walks that remove them from a distribution (docs/algorithms.md 8). What it refers to must outlive
// it.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/sequence/sequence_state.h"

namespace coppice::decoding {

class LayerEnds {
 public:
  LayerEnds() = default;  // none
  // The same for every beam.
  LayerEnds(absl::Span<const TokenId> stop_ids)  // NOLINT(google-explicit-constructor)
      : stop_ids_(stop_ids) {}
  LayerEnds(const std::vector<TokenId>& stop_ids)  // NOLINT(google-explicit-constructor)
      : stop_ids_(stop_ids) {}
  // Beam b of the layer is beams[b].
  LayerEnds(const SequenceState* state, absl::Span<const PathId> beams)
      : state_(state), beams_(beams) {}

  bool Has(Entry entry) const {
    return state_ == nullptr ? IsStopId(stop_ids_, entry.token)
                             : state_->Ends(beams_[entry.beam], entry.token);
  }
  std::vector<TokenId> Tokens(int beam) const {  // ascending, except stop_ids as given
    if (state_ != nullptr) return state_->EndTokens(beams_[beam]);
    return {stop_ids_.begin(), stop_ids_.end()};
  }
  void RemoveFrom(LayerDistribution* distribution) const {
    for (int beam = 0; beam < static_cast<int>(distribution->rows.size()); ++beam)
      RemoveTokens(beam, Tokens(beam), distribution);
  }

 private:
  absl::Span<const TokenId> stop_ids_;
  const SequenceState* state_ = nullptr;
  absl::Span<const PathId> beams_;
};

}  // namespace coppice::decoding
