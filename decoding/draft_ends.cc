#include "decoding/draft_ends.h"

#include "base/check.h"

namespace coppice::decoding {

DraftEnds::DraftEnds(const DecodingParams& params) : stop_ids_(params.stop_ids) {
  if (params.format != nullptr && params.format->has_complete_states()) format_ = params.format;
}

DraftEnds::State DraftEnds::Root(const DraftState& state, size_t r) const {
  if (format_ == nullptr) return 0;
  COPPICE_CHECK(state.root_format_state.size() == state.root_hash.size());
  return state.root_format_state[r];
}

}  // namespace coppice::decoding
