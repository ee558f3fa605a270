#include "coordinator/http/deadline.h"

namespace coppice::coordinator {

using boost::system::error_code;

Deadline::Deadline(boost::asio::ip::tcp::socket* socket)
    : socket_(socket), timer_(socket->get_executor()) {}

void Deadline::Arm(double seconds) {
  expired_ = false;
  Wait(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)), ++armed_);
}

void Deadline::Disarm() {
  ++armed_;
  error_code ignored;
  timer_.cancel(ignored);
}

void Deadline::Detach() {
  socket_ = nullptr;
  Disarm();
}

// Cancels repeatedly until disarmed. When a part of the operation has ended but its handler has not
// run, there is nothing to cancel, and the next part begins later. armed: the value of armed_ when
// the wait began. A wait from before the last Arm or Disarm does nothing.
void Deadline::Wait(std::chrono::microseconds time, uint64_t armed) {
  constexpr std::chrono::milliseconds kAgain(10);
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), armed, kAgain](error_code ec) {
    if (ec || self->socket_ == nullptr || self->armed_ != armed) return;
    self->expired_ = true;
    error_code ignored;
    self->socket_->cancel(ignored);
    self->Wait(kAgain, armed);
  });
}

}  // namespace coppice::coordinator
