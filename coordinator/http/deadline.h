// Ends a socket's pending operation when its time is up. Used by http_session. Event-loop thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>

namespace coppice::coordinator {

class Deadline : public std::enable_shared_from_this<Deadline> {
 public:
  explicit Deadline(boost::asio::ip::tcp::socket* socket);
  // Cancels the socket's pending operations after `seconds`, unless disarmed before.
  void Arm(double seconds);
  void Disarm();
  bool expired() const { return expired_; }
  // The socket ends. Call it last.
  void Detach();

 private:
  void Wait(std::chrono::microseconds time, uint64_t armed);

  boost::asio::ip::tcp::socket* socket_;
  boost::asio::steady_timer timer_;
  uint64_t armed_ = 0;  // how often it was armed or disarmed
  bool expired_ = false;
};

}  // namespace coppice::coordinator
