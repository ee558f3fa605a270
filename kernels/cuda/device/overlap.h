// Whether a launch may begin while the launch before it on the stream still runs (programmatic
// dependent launch, compute capability 9.0). Every kernel of ours waits for that one before it reads
// or writes anything but constants (dev::WaitForPrevious): its blocks are placed meanwhile, and
// products fetch their first weights.
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
