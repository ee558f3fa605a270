#include <sys/random.h>
#include <zmq.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "comm/channel.h"
#include "comm/frame_log.h"
#include "comm/transports.h"
#include "comm/zmq_context.h"
#include "comm/zmq_guard.h"

namespace coppice::comm {
namespace {

using google::protobuf::MessageLite;

constexpr int kSilence_s = 10;  // silence of a host after which a connection to it is closed

// ZeroMQ closes a connection if a frame is larger than this. Smaller oversized frames are read,
// counted and dropped.
size_t HardLimit(const ChannelOptions& options) {
  return 2 * options.max_message_bytes + kFrameHeaderBytes + 4096;
}

void SetCommonOptions(const ChannelOptions& options, ZmqSocket* socket) {
  const int64_t limit = static_cast<int64_t>(HardLimit(options));
  COPPICE_CHECK(zmq_setsockopt(socket->get(), ZMQ_MAXMSGSIZE, &limit, sizeof(limit)) == 0);
  socket->SetOption(ZMQ_SNDHWM, options.send_high_water);
  socket->SetOption(ZMQ_RCVHWM, options.send_high_water);
  socket->SetOption(ZMQ_LINGER, options.linger_ms);
  // The kernels of both hosts notice half-open connections. ZeroMQ's own heartbeats would also
  // close the connection to a stopped process, and lose the messages on their way to it.
  socket->SetOption(ZMQ_TCP_KEEPALIVE, 1);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_IDLE, kSilence_s / 2);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_INTVL, 1);
  socket->SetOption(ZMQ_TCP_KEEPALIVE_CNT, kSilence_s / 2);
  socket->SetOption(ZMQ_TCP_MAXRT, 1000 * kSilence_s);  // also if sent data is not acknowledged
  if (options.key != nullptr) {
    socket->SetOption(ZMQ_HANDSHAKE_IVL, static_cast<int>(1000 * options.handshake_deadline_s));
  }
}

// Some builds of ZeroMQ have no CURVE.
absl::Status CheckCurve(const std::string& endpoint, const ChannelOptions& options) {
  if (options.key == nullptr || zmq_has("curve") != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(endpoint +
                                       ": this libzmq has no CURVE, which a cluster key needs");
}

constexpr int kLinkEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                            ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// A routing id that the client keeps when it reconnects, so its peer knows it by the same name. 15
// bytes, because a string of that size needs no allocation.
std::string RandomRoutingId() {
  std::string id(15, 'C');
  COPPICE_CHECK(getrandom(id.data() + 1, id.size() - 1, 0) == static_cast<ssize_t>(id.size()) - 1);
  return id;
}

// One message part, reused for every frame received.
class MessagePart {
 public:
  MessagePart() { zmq_msg_init(&part_); }
  ~MessagePart() { zmq_msg_close(&part_); }
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;

  // Returns false if nothing is waiting.
  bool Receive(void* socket) {
    int result;
    do {
      result = zmq_msg_recv(&part_, socket, ZMQ_DONTWAIT);
    } while (result < 0 && errno == EINTR);
    return result >= 0;
  }
  bool more() const { return zmq_msg_more(&part_) != 0; }
  const uint8_t* data() { return static_cast<const uint8_t*>(zmq_msg_data(&part_)); }
  size_t size() const { return zmq_msg_size(&part_); }

 private:
  zmq_msg_t part_;
};

// The common part of both ends: framing, counting, the rate limit of the log.
class FramedSocket {
 public:
  FramedSocket(int type, const ChannelOptions& options) : socket_(type), options_(options) {
    SetCommonOptions(options, &socket_);
  }

  absl::Status Send(const std::string* peer, const std::string& name, const MessageLite& message) {
    const size_t body = message.ByteSizeLong();
    COPPICE_RETURN_IF_ERROR(CheckBodySize(name, body, options_.max_message_bytes));
    if (peer != nullptr && !SendPart(peer->data(), peer->size(), ZMQ_SNDMORE)) {
      return SendError(name);
    }
    zmq_msg_t frame;
    COPPICE_CHECK(zmq_msg_init_size(&frame, kFrameHeaderBytes + body) == 0);
    WriteFrame(message, body, static_cast<uint8_t*>(zmq_msg_data(&frame)));
    int result;
    do {
      result = zmq_msg_send(&frame, socket_.get(), ZMQ_DONTWAIT);
    } while (result < 0 && errno == EINTR);
    if (result < 0) {
      const absl::Status status = SendError(name);
      zmq_msg_close(&frame);
      return status;
    }
    log_.Sent(kFrameHeaderBytes + body);
    return absl::OkStatus();
  }

  // Parses the next good frame into *message and drops bad ones before it. Sets *peer, unless null,
  // to the sender.
  bool Receive(std::string* peer, const std::string& name, MessageLite* message) {
    while (part_.Receive(socket_.get())) {
      if (peer != nullptr) {
        peer->assign(reinterpret_cast<const char*>(part_.data()), part_.size());
        if (!part_.more() || !part_.Receive(socket_.get())) continue;
      }
      const size_t bytes = part_.size();
      if (part_.more()) {
        while (part_.more() && part_.Receive(socket_.get())) {
        }
        log_.Drop(FrameFault::kMalformed, name, bytes);
        continue;
      }
      if (log_.Take(name, {part_.data(), bytes}, options_.max_message_bytes, message)) return true;
    }
    return false;
  }

  ZmqSocket& socket() { return socket_; }
  const ChannelCounters& counters() const { return log_.counters(); }

 private:
  bool SendPart(const void* data, size_t size, int flags) {
    int result;
    do {
      result = zmq_send(socket_.get(), data, size, flags | ZMQ_DONTWAIT);
    } while (result < 0 && errno == EINTR);
    return result >= 0;
  }

  static absl::Status SendError(const std::string& name) {
    if (errno == EHOSTUNREACH) return absl::UnavailableError(name + ": the peer is gone");
    if (errno == EAGAIN) return absl::ResourceExhaustedError(name + ": send queue is full");
    return absl::UnavailableError(absl::StrCat(name, ": send: ", zmq_strerror(errno)));
  }

  ZmqSocket socket_;
  ChannelOptions options_;
  FrameLog log_;
  MessagePart part_;
};

class ZmqServerChannel final : public ServerChannel {
 public:
  explicit ZmqServerChannel(const ChannelOptions& options) : framed_(ZMQ_ROUTER, options) {
    if (options.key != nullptr) guard_ = ZmqGuard::Protect(&framed_.socket(), *options.key);
    framed_.socket().SetOption(ZMQ_ROUTER_MANDATORY, 1);  // sending to an unknown peer is an error
    framed_.socket().SetOption(ZMQ_ROUTER_HANDOVER, 1);   // a reconnecting peer keeps its name
  }
  ~ZmqServerChannel() override {
    if (guard_ != nullptr) guard_->Release(&framed_.socket());
  }

  absl::Status Bind(const std::string& endpoint) {
    if (zmq_bind(framed_.socket().get(), endpoint.c_str()) != 0) return ZmqError("bind", endpoint);
    char bound[256];
    size_t size = sizeof(bound);
    if (zmq_getsockopt(framed_.socket().get(), ZMQ_LAST_ENDPOINT, bound, &size) != 0) {
      return ZmqError("bind", endpoint);
    }
    endpoint_ = bound;
    return absl::OkStatus();
  }

  const std::string& endpoint() const override { return endpoint_; }
  absl::Status Send(const std::string& peer, const MessageLite& message) override {
    return framed_.Send(&peer, endpoint_, message);
  }
  std::optional<std::string> Receive(MessageLite* message) override {
    std::string peer;
    if (!framed_.Receive(&peer, endpoint_, message)) return std::nullopt;
    return peer;
  }
  Pollable socket() override { return {.zmq = framed_.socket().get()}; }
  const ChannelCounters& counters() const override { return framed_.counters(); }

 private:
  std::shared_ptr<ZmqGuard> guard_;  // set only with a key; outlives the socket
  FramedSocket framed_;
  std::string endpoint_;
};

class ZmqClientChannel final : public ClientChannel {
 public:
  ZmqClientChannel(const std::string& endpoint, const ChannelOptions& options)
      : framed_(ZMQ_DEALER, options), endpoint_(endpoint) {
    if (options.key != nullptr) ZmqGuard::Equip(&framed_.socket(), *options.key);
    if (!options.monitor.empty()) {
      COPPICE_CHECK(
          zmq_socket_monitor(framed_.socket().get(), options.monitor.c_str(), kLinkEvents) == 0);
    }
    framed_.socket().SetOption(ZMQ_ROUTING_ID, RandomRoutingId());
    framed_.socket().SetOption(ZMQ_RECONNECT_IVL, 50);
    framed_.socket().SetOption(ZMQ_RECONNECT_IVL_MAX, 1000);
    framed_.socket().SetOption(ZMQ_CONNECT_TIMEOUT, 5000);
  }

  absl::Status Connect() {
    if (zmq_connect(framed_.socket().get(), endpoint_.c_str()) != 0) {
      return ZmqError("connect", endpoint_);
    }
    return absl::OkStatus();
  }

  const std::string& endpoint() const override { return endpoint_; }
  absl::Status Send(const MessageLite& message) override {
    return framed_.Send(nullptr, endpoint_, message);
  }
  bool Receive(MessageLite* message) override {
    return framed_.Receive(nullptr, endpoint_, message);
  }
  Pollable socket() override { return {.zmq = framed_.socket().get()}; }
  const ChannelCounters& counters() const override { return framed_.counters(); }

 private:
  FramedSocket framed_;
  std::string endpoint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerChannel>> BindZmq(const std::string& endpoint,
                                                       const ChannelOptions& options) {
  COPPICE_RETURN_IF_ERROR(CheckCurve(endpoint, options));
  auto channel = std::make_unique<ZmqServerChannel>(options);
  COPPICE_RETURN_IF_ERROR(channel->Bind(endpoint));
  return channel;
}

absl::StatusOr<std::unique_ptr<ClientChannel>> ConnectZmq(const std::string& endpoint,
                                                          const ChannelOptions& options) {
  COPPICE_RETURN_IF_ERROR(CheckCurve(endpoint, options));
  auto channel = std::make_unique<ZmqClientChannel>(endpoint, options);
  COPPICE_RETURN_IF_ERROR(channel->Connect());
  return channel;
}

}  // namespace coppice::comm
