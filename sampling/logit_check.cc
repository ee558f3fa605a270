#include "sampling/logit_check.h"

#include <limits>

namespace coppice::sampling {
namespace {

constexpr float kMost = std::numeric_limits<float>::max();

constexpr int IsBad(float logit) { return (logit > kMost) | (logit != logit); }

}  // namespace

int FirstBadLogit(absl::Span<const float> logits) {
  // First checks the whole row, without a branch in the loop.
  int bad = 0;
  for (const float logit : logits) bad |= IsBad(logit);
  if (bad == 0) return -1;
  int index = 0;
  while (!IsBad(logits[index])) ++index;
  return index;
}

}  // namespace coppice::sampling
