#include "coordinator/http/rate_limiter.h"

#include <algorithm>
#include <cmath>

namespace coppice::coordinator {

int RateLimiter::Take(absl::string_view caller, double now_s) {
  if (per_minute_ == 0) return 0;
  auto it = buckets_.find(caller);
  if (it == buckets_.end())
    it = buckets_.emplace(caller, Bucket{static_cast<double>(per_minute_), now_s}).first;
  Bucket& bucket = it->second;
  const double rate = per_minute_ / 60.0;
  bucket.requests = std::min<double>(per_minute_, bucket.requests + (now_s - bucket.at_s) * rate);
  bucket.at_s = now_s;
  if (bucket.requests >= 1) {
    bucket.requests -= 1;
    return 0;
  }
  return std::max(1, static_cast<int>(std::ceil((1 - bucket.requests) / rate)));
}

}  // namespace coppice::coordinator
