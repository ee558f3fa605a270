// Threads that read large bodies, so that the event loop goes on meanwhile. Made by the coordinator,
// used by routes. Event-loop thread, except for what the threads call.
#pragma once

#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace coppice::coordinator {

class BodyReaders {
 public:
  // io must outlive this.
  explicit BodyReaders(boost::asio::io_context* io);
  // What has not begun is dropped, and what is being read is waited for.
  ~BodyReaders();

  // Calls read on one of the threads, in the order of the calls, and then `then` in the event loop.
  // Both are destroyed in the event loop, or with this object or io. read must not throw.
  void Post(std::function<void()> read, std::function<void()> then);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::coordinator
