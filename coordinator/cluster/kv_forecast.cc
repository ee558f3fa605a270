#include "coordinator/cluster/kv_forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "decoding/params.h"

namespace coppice::coordinator {

KvBounds KvBoundsOf(const GenerateRequest& request, int64_t prompt_tokens,
                    const KvStorage& storage) {
  return {PagesOf(storage, prompt_tokens),
          decoding::KvPagesBound(request.params, prompt_tokens, storage)};
}

KvForecast::Kind KvForecast::KindOf(const GenerateRequest& request) {
  const auto tokens = static_cast<unsigned>(std::max(0, request.max_tokens()));
  return {decoding::MostBeams(request.params) > 1, request.max_tokens_given,
          std::bit_width(tokens) / 2};
}

int64_t KvForecast::Expect(const GenerateRequest& request, const KvBounds& bounds) const {
  const auto used = used_.find(KindOf(request));
  if (used == used_.end() || used->second.shares.size() < kLeast) return bounds.most;
  std::vector<double> shares = used->second.shares;
  const auto covers = shares.begin() + static_cast<int64_t>(covered_ * (shares.size() - 1) + 0.5);
  std::nth_element(shares.begin(), covers, shares.end());
  const auto room = static_cast<double>(bounds.most - bounds.prompt);
  return std::clamp<int64_t>(bounds.prompt + std::llround(std::ceil(*covers * room)), 1,
                             bounds.most);
}

void KvForecast::Record(const GenerateRequest& request, const KvBounds& bounds, int64_t peak) {
  const auto room = static_cast<double>(std::max<int64_t>(1, bounds.most - bounds.prompt));
  const double share = std::clamp(static_cast<double>(peak - bounds.prompt) / room, 0.0, 1.0);
  Used& used = used_[KindOf(request)];
  if (used.shares.size() < kKept) {
    used.shares.push_back(share);
  } else {
    used.shares[used.next] = share;
    used.next = (used.next + 1) % kKept;
  }
}

}  // namespace coppice::coordinator
