// When replicas sent the tokens of the streams that are sampled. The replicas' threads write, the
// client's thread reads: both are in one process, so there is one clock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace coppice::bench {

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Stamps {
 public:
  static constexpr int kTokens = 1 << 12;  // tokens of a stream that have a stamp

  // Of `streams` streams each `stride`-th is sampled.
  Stamps(int streams, int stride)
      : stride_(stride),
        ns_(new std::atomic<int64_t>[static_cast<size_t>(streams / stride + 1) * kTokens]()) {}

  bool Sampled(uint64_t stream) const { return stream % static_cast<uint64_t>(stride_) == 0; }
  int stride() const { return stride_; }
  // nullptr: the stream is not sampled, or has no stamp for so many tokens.
  std::atomic<int64_t>* Of(uint64_t stream, size_t token) const {
    if (!Sampled(stream) || token >= kTokens) return nullptr;
    return &ns_[stream / static_cast<uint64_t>(stride_) * kTokens + token];
  }

 private:
  const int stride_;
  const std::unique_ptr<std::atomic<int64_t>[]> ns_;  // [sampled streams, kTokens]
};

}  // namespace coppice::bench
