#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "comm/channel.h"
#include "comm/zmq_context.h"

namespace coppice {
namespace {

// A pair of in-process sockets. The flag keeps at most one notification under way, so Notify never
// blocks.
class ZmqWaker final : public Waker {
 public:
  ZmqWaker() : reader_(ZMQ_PAIR), writer_(ZMQ_PAIR) {
    static std::atomic<uint64_t> number = 0;
    const std::string name = absl::StrCat("inproc://waker-", number++);
    COPPICE_CHECK(zmq_bind(reader_.get(), name.c_str()) == 0);
    COPPICE_CHECK(zmq_connect(writer_.get(), name.c_str()) == 0);
  }

  void Notify() override {
    if (pending_.exchange(true)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    while (zmq_send(writer_.get(), "", 0, ZMQ_DONTWAIT) < 0 && errno == EINTR) {
    }
  }

  // The flag falls after the socket is empty: a Notify in between is covered by what the caller
  // reads next.
  void Drain() override {
    char byte;
    while (zmq_recv(reader_.get(), &byte, sizeof(byte), ZMQ_DONTWAIT) >= 0 || errno == EINTR) {
    }
    pending_ = false;
  }

  void* socket() override { return reader_.get(); }

 private:
  ZmqSocket reader_;
  std::mutex mutex_;  // guards writer_
  ZmqSocket writer_;
  std::atomic<bool> pending_ = false;
};

}  // namespace

std::unique_ptr<Waker> Waker::Create() { return std::make_unique<ZmqWaker>(); }

bool Poll(absl::Span<void* const> sockets, int timeout_ms, std::vector<bool>* ready) {
  thread_local std::vector<zmq_pollitem_t> items;
  items.clear();
  for (void* socket : sockets) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  const int count = zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms);
  if (ready != nullptr) {
    ready->assign(sockets.size(), false);
    for (size_t i = 0; i < items.size() && count > 0; ++i) {
      (*ready)[i] = (items[i].revents & ZMQ_POLLIN) != 0;
    }
  }
  return count > 0;
}

}  // namespace coppice
