// The moment at which a request is cut off, and why. Used by the client, one for each request.
// Thread-compatible.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "loadgen/connection.h"

namespace coppice::loadgen {

enum class Cut { kNone, kTimeout, kCancelled, kRunEnd };

class RequestDeadline {
 public:
  RequestDeadline(boost::asio::io_context& io, std::chrono::steady_clock::time_point when, Cut why);
  ~RequestDeadline();

  // The connection that is closed at that moment; nullptr = none. It must outlive this watch.
  void Watch(Connection* connection) { state_->connection = connection; }
  // kNone until the moment has passed.
  Cut cut() const { return state_->cut; }

 private:
  // Shared with the timer's handler, which may be under way when the request ends.
  struct State {
    explicit State(boost::asio::io_context& io) : timer(io) {}
    boost::asio::steady_timer timer;
    Connection* connection = nullptr;
    Cut cut = Cut::kNone;
  };
  std::shared_ptr<State> state_;
};

}  // namespace coppice::loadgen
