#include "comm/local_channel.h"

#include <deque>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/frame_log.h"

namespace coppice::comm {
namespace {

using google::protobuf::MessageLite;

constexpr char kEndpoint[] = "local", kPeer[] = "local";

// The messages of one direction. Its waker is notified while messages wait or once it is closed.
class MessageQueue {
 public:
  // Unavailable: closed. ResourceExhausted: full.
  absl::Status Push(std::string message, size_t most) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return absl::UnavailableError(absl::StrCat(kEndpoint, ": the other end is gone"));
    if (messages_.size() >= most)
      return absl::ResourceExhaustedError(absl::StrCat(kEndpoint, ": the queue is full"));
    messages_.push_back(std::move(message));
    if (messages_.size() == 1) waker_->Notify();
    return absl::OkStatus();
  }
  std::optional<std::string> Pop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    std::string message = std::move(messages_.front());
    messages_.pop_front();
    if (messages_.empty() && !closed_) waker_->Drain();
    return message;
  }
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(closed_, true)) return;
    if (messages_.empty()) waker_->Notify();
  }
  bool closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }
  Pollable socket() { return waker_->socket(); }

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> messages_;
  bool closed_ = false;
  const std::unique_ptr<Waker> waker_ = Waker::Create();
};

struct Link {
  MessageQueue to_server, to_client;

  void Close() {
    to_server.Close();
    to_client.Close();
  }
};

// What both ends do.
class LinkEnd {
 public:
  LinkEnd(std::shared_ptr<Link> link, MessageQueue* in, MessageQueue* out,
          const ChannelOptions& options)
      : link_(std::move(link)), in_(in), out_(out), options_(options) {}
  ~LinkEnd() { link_->Close(); }

  absl::Status Send(const MessageLite& message) {
    const size_t bytes = message.ByteSizeLong();
    COPPICE_RETURN_IF_ERROR(CheckBodySize(kEndpoint, bytes, options_.max_message_bytes));
    COPPICE_RETURN_IF_ERROR(out_->Push(message.SerializeAsString(), options_.send_high_water));
    ++counters_.sent;
    counters_.sent_bytes += bytes;
    return absl::OkStatus();
  }
  bool Receive(MessageLite* message) {
    while (const auto bytes = in_->Pop()) {
      if (!message->ParseFromString(*bytes)) {
        ++counters_.dropped_malformed;
        continue;
      }
      ++counters_.received;
      counters_.received_bytes += bytes->size();
      return true;
    }
    return false;
  }
  void Close() { link_->Close(); }
  bool closed() const { return in_->closed(); }
  Pollable socket() { return in_->socket(); }
  const ChannelCounters& counters() const { return counters_; }

 private:
  const std::shared_ptr<Link> link_;
  MessageQueue *const in_, *const out_;
  const ChannelOptions options_;
  ChannelCounters counters_;
};

class QueueServer final : public LocalServer {
 public:
  QueueServer(std::shared_ptr<Link> link, const ChannelOptions& options)
      : end_(link, &link->to_server, &link->to_client, options) {}

  const std::string& endpoint() const override { return endpoint_; }
  absl::Status Send(const std::string&, const MessageLite& message) override {
    return end_.Send(message);
  }
  std::optional<std::string> Receive(MessageLite* message) override {
    return end_.Receive(message) ? std::optional<std::string>(kPeer) : std::nullopt;
  }
  std::vector<std::string> TakeGone() override {
    if (!end_.closed() || std::exchange(told_, true)) return {};
    return {kPeer};
  }
  void Close() override { end_.Close(); }
  bool closed() const override { return end_.closed(); }
  Pollable socket() override { return end_.socket(); }
  const ChannelCounters& counters() const override { return end_.counters(); }

 private:
  const std::string endpoint_ = kEndpoint;
  LinkEnd end_;
  bool told_ = false;  // that the peer is gone
};

class QueueClient final : public ClientChannel {
 public:
  QueueClient(std::shared_ptr<Link> link, const ChannelOptions& options)
      : end_(link, &link->to_client, &link->to_server, options) {}

  const std::string& endpoint() const override { return endpoint_; }
  absl::Status Send(const MessageLite& message) override { return end_.Send(message); }
  bool Receive(MessageLite* message) override { return end_.Receive(message); }
  uint64_t breaks() const override { return end_.closed() ? 1 : 0; }
  Pollable socket() override { return end_.socket(); }
  const ChannelCounters& counters() const override { return end_.counters(); }

 private:
  const std::string endpoint_ = kEndpoint;
  LinkEnd end_;
};

}  // namespace

LocalChannels MakeLocalChannels(const ChannelOptions& options) {
  const auto link = std::make_shared<Link>();
  return {std::make_unique<QueueServer>(link, options),
          std::make_unique<QueueClient>(link, options)};
}

}  // namespace coppice::comm
