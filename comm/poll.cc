#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/clock.h"
#include "comm/channel.h"
#include "comm/tcp_socket.h"

namespace coppice::comm {
namespace {

class EventWaker final : public Waker {
 public:
  EventWaker() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    COPPICE_CHECK_MSG(event_.open(), "eventfd: no file descriptor");
  }

  void Notify() override {
    const uint64_t one = 1;
    while (write(event_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void Drain() override {
    uint64_t count;
    while (read(event_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  }

  Pollable socket() override { return {.fd = event_.get()}; }

 private:
  FileDescriptor event_;
};

// For zmq_poll and poll(2). Fills *items, waits and sets their revents.
template <typename Item, typename Wait>
bool PollItems(absl::Span<const Pollable> sockets, std::vector<Item>* items, Wait wait,
               std::vector<bool>* ready) {
  wait(items->data(), items->size());
  if (ready != nullptr) ready->assign(sockets.size(), false);
  bool any = false;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i].ready && (*items)[i].revents == 0) continue;
    any = true;
    if (ready != nullptr) (*ready)[i] = true;
  }
  return any;
}

}  // namespace

std::unique_ptr<Waker> Waker::Create() { return std::make_unique<EventWaker>(); }

bool Poll(absl::Span<const Pollable> sockets, int timeout_ms, std::vector<bool>* ready) {
  const auto any = [&](auto holds) { return std::any_of(sockets.begin(), sockets.end(), holds); };
  if (any([](const Pollable& socket) { return socket.ready; })) timeout_ms = 0;
  if (any([](const Pollable& socket) { return socket.zmq != nullptr; })) {
    thread_local std::vector<zmq_pollitem_t> items;
    items.clear();
    for (const Pollable& socket : sockets) {
      const int events = ZMQ_POLLIN | (socket.writing ? ZMQ_POLLOUT : 0);
      items.push_back({socket.zmq, socket.fd, static_cast<short>(events), 0});
    }
    return PollItems(
        sockets, &items,
        [&](auto* first, size_t count) { zmq_poll(first, static_cast<int>(count), timeout_ms); },
        ready);
  }
  thread_local std::vector<pollfd> items;  // without ZeroMQ sockets, poll(2) is cheaper
  items.clear();
  for (const Pollable& socket : sockets) {
    const int events = POLLIN | (socket.writing ? POLLOUT : 0);
    items.push_back({socket.fd, static_cast<short>(events), 0});
  }
  return PollItems(
      sockets, &items,
      [&](auto* first, size_t count) {
        if (poll(first, count, timeout_ms) < 0) {
          for (pollfd& item : items) item.revents = 0;  // interrupted by a signal
        }
      },
      ready);
}

bool PollAwake(absl::Span<const Pollable> sockets, double until_s) {
  while (SteadyClock().NowSeconds() < until_s) {
    if (Poll(sockets, 0)) return true;
    sched_yield();
  }
  return false;
}

}  // namespace coppice::comm
