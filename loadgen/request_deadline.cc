#include "loadgen/request_deadline.h"

namespace coppice::loadgen {

RequestDeadline::RequestDeadline(boost::asio::io_context& io,
                                 std::chrono::steady_clock::time_point when, Cut why)
    : state_(std::make_shared<State>(io)) {
  state_->timer.expires_at(when);
  state_->timer.async_wait([state = state_, why](ErrorCode cancelled) {
    if (cancelled) return;
    state->cut = why;
    if (state->connection != nullptr) state->connection->Close();
  });
}

RequestDeadline::~RequestDeadline() {
  state_->connection = nullptr;
  state_->timer.cancel();
}

}  // namespace coppice::loadgen
