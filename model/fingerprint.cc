#include "model/fingerprint.h"

#include <algorithm>

#include "sampling/rng.h"

namespace coppice::model {

void Fingerprint::Add(std::string_view bytes) {
  state_ = sampling::Finalize(state_ + sampling::kRootHash * (bytes.size() + 1));
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    const size_t count = std::min<size_t>(8, bytes.size() - at);
    for (size_t i = 0; i < count; ++i)
      word |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
    state_ = sampling::Finalize((state_ ^ word) + sampling::kRootHash);
  }
}

}  // namespace coppice::model
