// Whether a launch may be placed on the device while what ran before it on the stream still runs
// (programmatic dependent launch, compute capability 9.0). Every kernel of ours waits for that
// first of all (dev::WaitForPrevious), so that only the placing itself overlaps.
#pragma once

namespace coppice::kernels::cuda {

// Whether the launches of this thread overlap.
inline thread_local bool launches_overlap = false;

// Turns it on or off while it lives.
class OverlapScope {
 public:
  explicit OverlapScope(bool on) : before_(launches_overlap) { launches_overlap = on; }
  ~OverlapScope() { launches_overlap = before_; }
  OverlapScope(const OverlapScope&) = delete;
  OverlapScope& operator=(const OverlapScope&) = delete;

 private:
  const bool before_;
};

}  // namespace coppice::kernels::cuda
