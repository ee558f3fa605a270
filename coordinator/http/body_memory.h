// Counts the bytes of request bodies that all connections together hold, from when they arrive
// until they are freed, and keeps them below a limit (docs/api.md 3.1). Used by http_session.
// Event-loop thread, but for the end of a Share whose body has arrived: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>

namespace coppice::coordinator {

class BodyMemory {
 public:
  // Bytes of a body that are not counted, so that small requests are always served.
  static constexpr size_t kFree = 16 << 10;

  // What one body holds. It outlives the body.
  class Share {
   public:
    // give_up: called at most once, while another one grows. It frees the body, which is then
    // refused.
    Share(std::shared_ptr<BodyMemory> memory, std::function<void()> give_up);
    ~Share();
    Share(const Share&) = delete;
    // The body now has this many bytes. If all bodies together exceed the limit, the largest
    // arriving one gives up. false: this one gave up, and its bytes are no longer counted.
    bool Grow(size_t bytes);
    // The body is complete. Its bytes count until this object ends.
    void Arrived();

   private:
    friend class BodyMemory;
    void Release();

    const std::shared_ptr<BodyMemory> memory_;
    std::function<void()> give_up_;
    size_t counted_ = 0;
    bool arriving_ = true;
    std::list<Share*>::iterator at_;  // valid while the body arrives
  };

  explicit BodyMemory(size_t limit) : limit_(limit) {}
  size_t held() const { return held_; }

 private:
  const size_t limit_;
  std::atomic<size_t> held_{0};
  std::list<Share*> arriving_;  // in the order in which they began
};

}  // namespace coppice::coordinator
