// How many requests a caller may send in a minute: a bucket for each caller that is full at first
// and refills at a constant rate. Used by routes before a request is read. The clock is an
// argument; event-loop thread.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::coordinator {

class RateLimiter {
 public:
  // per_minute 0: no limit.
  explicit RateLimiter(int per_minute) : per_minute_(per_minute) {}
  // 0: the request is accepted. Otherwise the seconds after which one would be accepted, at least
  // 1. caller: the name of its key, so there are as many buckets as keys.
  int Take(absl::string_view caller, double now_s);

 private:
  struct Bucket {
    double requests = 0, at_s = 0;
  };
  const int per_minute_;
  std::map<std::string, Bucket, std::less<>> buckets_;
};

}  // namespace coppice::coordinator
