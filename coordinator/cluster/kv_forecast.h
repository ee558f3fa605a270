// How much KV a sequence is expected to use: as large a part of what it could use beyond its prompt
// as was enough for most of the last sequences of its kind (--kv_cover: four in five). Most answers
// end long before max_tokens, and beams share most of their tokens. A sequence that needs more gets
// it; when the pool runs short, the replica preempts another one (worker/preemption.h). Used by the
// dispatcher. Deterministic, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "coordinator/api/generate_request.h"
#include "plan/kv_storage.h"

namespace coppice::coordinator {

// Of one sequence, in KV blocks; with windows, in pages.
struct KvBounds {
  int64_t prompt = 0;  // what its prompt takes
  int64_t most = 0;    // KvPagesBound
};
KvBounds KvBoundsOf(const GenerateRequest& request, int64_t prompt_tokens,
                    const KvStorage& storage);

class KvForecast {
 public:
  // covered: the share of recent sequences for which the expectation would have been enough, 0 to 1.
  explicit KvForecast(double covered) : covered_(covered) {}

  // At most bounds.most, and that as long as fewer than kLeast sequences of the kind have ended.
  int64_t Expect(const GenerateRequest& request, const KvBounds& bounds) const;
  // A sequence has ended, and had `peak` blocks at most.
  void Record(const GenerateRequest& request, const KvBounds& bounds, int64_t peak);

  static constexpr int kLeast = 4, kKept = 64;

 private:
  // Several beams; the request gives max_tokens; half the bits of max_tokens.
  using Kind = std::tuple<bool, bool, int>;
  static Kind KindOf(const GenerateRequest& request);

  struct Used {
    std::vector<double> shares;  // the last kKept, in a ring
    size_t next = 0;
  };
  const double covered_;
  std::map<Kind, Used> used_;
};

}  // namespace coppice::coordinator
