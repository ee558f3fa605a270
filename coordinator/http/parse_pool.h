// Threads that read large bodies and form large answers, so that the event loop continues
// meanwhile. Clients take turns by bytes. Made by the coordinator, used by routes and requests.
// Event-loop thread, except for what the threads call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "coordinator/http/fair_queue.h"

namespace boost::asio {
class io_context;
}

namespace coppice::coordinator {

class ParsePool {
 public:
  // io must outlive this.
  explicit ParsePool(boost::asio::io_context* io);
  // Drops jobs that have not begun, and waits for those that run.
  ~ParsePool();

  // Calls work on one of the threads and then `then` in the event loop. Both are destroyed in the
  // event loop, or with this object or io. work must not throw. bytes: the approximate size of the
  // work. The jobs of a client begin in order, but small ones do not wait for large ones: at least
  // one thread is reserved for small ones. Returns the id of the job.
  uint64_t Post(const Client& client, size_t bytes, std::function<void()> work,
                std::function<void()> then);
  // Calls `then` soon. Skips the work unless it has begun.
  void Skip(uint64_t job);
  // Every job's `then` has been called.
  bool idle() const { return unfinished_ == 0; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  size_t unfinished_ = 0;  // used by the event-loop thread
};

}  // namespace coppice::coordinator
