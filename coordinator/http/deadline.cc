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

// A part of the operation may have ended and its handler not have run: then there is nothing to
// cancel yet, and the next part begins. So this goes on until disarmed. armed: a wait of an earlier
// time, whose handler may still run later, cancels nothing.
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
