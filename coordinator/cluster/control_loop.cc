#include "coordinator/cluster/control_loop.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace coppice::coordinator {
namespace {

class ControlLoopImpl : public ControlLoop {
 public:
  ControlLoopImpl(std::unique_ptr<comm::ServerChannel> channel, OnMessage on_message)
      : channel_(std::move(channel)),
        endpoint_(channel_->endpoint()),
        on_message_(std::move(on_message)),
        waker_(comm::Waker::Create()),
        thread_([this] { Run(); }) {}

  ~ControlLoopImpl() override {
    stop_ = true;
    waker_->Notify();
    thread_.join();
  }

  void Send(const std::string& peer, proto::CoordinatorMessage message) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      outgoing_.emplace_back(peer, std::move(message));
    }
    waker_->Notify();
  }

  const std::string& endpoint() const override { return endpoint_; }

 private:
  void Run() {
    const comm::Pollable sockets[] = {channel_->socket(), waker_->socket()};
    while (!stop_) {
      comm::Poll(sockets, /*timeout_ms=*/1000);
      waker_->Drain();
      proto::NodeMessage message;
      while (const std::optional<std::string> peer = channel_->Receive(&message)) {
        on_message_(*peer, std::exchange(message, proto::NodeMessage()));
      }
      SendQueued();
    }
    SendQueued();
  }

  void SendQueued() {
    std::vector<std::pair<std::string, proto::CoordinatorMessage>> outgoing;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      outgoing.swap(outgoing_);
    }
    for (const auto& [peer, message] : outgoing) {
      // Errors are ignored: a lost peer is noticed by its missing heartbeats.
      const absl::Status sent = channel_->Send(peer, message);
      if (!sent.ok()) spdlog::debug("control: {}", std::string(sent.message()));
    }
  }

  std::unique_ptr<comm::ServerChannel> channel_;
  const std::string endpoint_;
  const OnMessage on_message_;
  std::unique_ptr<comm::Waker> waker_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::pair<std::string, proto::CoordinatorMessage>> outgoing_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControlLoop> ControlLoop::Start(std::unique_ptr<comm::ServerChannel> channel,
                                                OnMessage on_message) {
  return std::make_unique<ControlLoopImpl>(std::move(channel), std::move(on_message));
}

}  // namespace coppice::coordinator
