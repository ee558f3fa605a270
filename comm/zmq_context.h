// The only ZeroMQ context of the process. Every socket holds a reference, so the context is
// destroyed with the last socket and never during static destruction, where exit could hang. Any
// thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace coppice::comm {

std::shared_ptr<void> SharedZmqContext();

// A socket and the reference that keeps its context alive. Belongs to one thread.
class ZmqSocket {
 public:
  // type: ZMQ_ROUTER, ...
  explicit ZmqSocket(int type);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void* get() const { return socket_; }
  void SetOption(int option, int value);
  void SetOption(int option, const std::string& value);

 private:
  std::shared_ptr<void> context_;
  void* socket_;
};

// InvalidArgument for an endpoint that is not an address, Unavailable otherwise: "bind tcp://...:
// Address already in use".
absl::Status ZmqError(const char* what, const std::string& endpoint);

}  // namespace coppice::comm
