// The direct transport: the polling thread itself reads and writes its connections.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/channel.h"
#include "comm/frame_log.h"
#include "comm/frame_stream.h"
#include "comm/tcp_socket.h"
#include "comm/transports.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {
namespace {

using google::protobuf::MessageLite;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr auto kFirstRetry = std::chrono::milliseconds(50);
constexpr auto kLastRetry = std::chrono::milliseconds(1000);
constexpr auto kConnectTimeout = std::chrono::seconds(5);
constexpr auto kAcceptAgain = std::chrono::seconds(1);  // pause if no file descriptor is left

SteadyTime Now() { return std::chrono::steady_clock::now(); }

// All connections share one epoll descriptor, so a poll waits for only one descriptor.
class DirectServerChannel final : public ServerChannel {
 public:
  explicit DirectServerChannel(const ChannelOptions& options) : options_(options) {}

  absl::Status Bind(const std::string& endpoint) {
    COPPICE_ASSIGN_OR_RETURN(listener_, ListenTcp(endpoint, &endpoint_));
    epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.open()) return SocketError("epoll_create1", endpoint, errno);
    Watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    local_ = ListenLocal(endpoint_);
    if (local_.open()) Watch(EPOLL_CTL_ADD, local_.get(), kLocal, EPOLLIN);
    return absl::OkStatus();
  }

  const std::string& endpoint() const override { return endpoint_; }

  absl::Status Send(const std::string& peer, const MessageLite& message) override {
    const size_t body = message.ByteSizeLong();
    COPPICE_RETURN_IF_ERROR(CheckBodySize(endpoint_, body, options_.max_message_bytes));
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return absl::UnavailableError(endpoint_ + ": the peer is gone");
    Connection& connection = connections_.at(found->second);
    const absl::Status status =
        connection.stream.Write(connection.fd.get(), endpoint_, message, body);
    if (absl::IsUnavailable(status)) Close(found->second);
    if (!status.ok()) return status;
    WatchForRoom(found->second, &connection);
    log_.Sent(kFrameHeaderBytes + body);
    return absl::OkStatus();
  }

  std::optional<std::string> Receive(MessageLite* message) override {
    // A peer whose frames are all dropped must not keep the caller in this loop.
    for (int turn = 0; turn < kMostTurns; ++turn) {
      while (!unread_.empty()) {
        const uint64_t id = unread_.front();
        unread_.pop_front();
        const auto found = connections_.find(id);
        if (found == connections_.end()) continue;
        Connection& connection = found->second;
        const absl::Span<const uint8_t> frame = connection.stream.Next();
        if (frame.empty()) {
          connection.unread = false;
          if (connection.stream.fault() != FrameFault::kNone) {
            log_.Drop(connection.stream.fault(), endpoint_, kFrameHeaderBytes);
          } else if (!connection.ended) {
            continue;
          }
          Close(id);
          continue;
        }
        unread_.push_back(id);  // the others' turn
        if (!log_.Take(endpoint_, frame, options_.max_message_bytes, message)) continue;
        connection.heard = true;
        return connection.name;
      }
      if (!Pump()) break;
    }
    return std::nullopt;
  }

  std::vector<std::string> TakeGone() override { return std::exchange(gone_, {}); }
  Pollable socket() override { return {.fd = epoll_.get(), .ready = !unread_.empty()}; }
  const ChannelCounters& counters() const override { return log_.counters(); }

 private:
  static constexpr uint64_t kListener = 0, kLocal = 1;  // connections have the numbers after these
  static constexpr int kMostTurns = 4;

  struct Connection {
    FileDescriptor fd;
    FrameStream stream;
    std::string name;
    bool heard = false;    // Receive has returned its name
    bool unread = false;   // is in unread_
    bool ended = false;    // nothing more will arrive
    bool writing = false;  // epoll waits for room to write
  };

  void Watch(int operation, int fd, uint64_t id, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    (void)epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void WatchForRoom(uint64_t id, Connection* connection) {
    if (connection->stream.writing() == connection->writing) return;
    connection->writing = !connection->writing;
    Watch(EPOLL_CTL_MOD, connection->fd.get(), id,
          connection->writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  // Reads and writes as much as possible. Returns false if nothing was possible.
  bool Pump() {
    if (!accepting_ && Now() >= accept_again_) Accepting(true);
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kListener || id == kLocal) {
        Accept((id == kListener ? listener_ : local_).get());
      } else {
        Move(id, events[i].events);
      }
    }
    return count > 0;
  }

  void Move(uint64_t id, uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if ((events & EPOLLOUT) != 0) {
      connection.ended = !connection.stream.Flush(connection.fd.get());
      WatchForRoom(id, &connection);
    }
    if (!connection.ended && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    if (!connection.stream.Read(connection.fd.get())) connection.ended = true;
    if (connection.ended) Watch(EPOLL_CTL_DEL, connection.fd.get(), id, 0);
    if (!std::exchange(connection.unread, true)) unread_.push_back(id);
  }

  void Accept(int listener) {
    for (;;) {
      FileDescriptor fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.open()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          spdlog::warn("{}", SocketError("accept", endpoint_, errno).ToString());
          Accepting(false);
          accept_again_ = Now() + kAcceptAgain;
        }
        return;
      }
      SetStreamOptions(fd.get());
      const uint64_t id = ++last_id_;
      Watch(EPOLL_CTL_ADD, fd.get(), id, EPOLLIN);
      const std::string name = absl::StrCat("direct-", id);
      peers_[name] = id;
      connections_.emplace(
          id, Connection{std::move(fd),
                         FrameStream(options_.max_message_bytes, options_.send_high_water), name});
    }
  }

  void Accepting(bool on) {
    accepting_ = on;
    const uint32_t events = on ? uint32_t{EPOLLIN} : 0;
    Watch(EPOLL_CTL_MOD, listener_.get(), kListener, events);
    if (local_.open()) Watch(EPOLL_CTL_MOD, local_.get(), kLocal, events);
  }

  void Close(uint64_t id) {
    const auto found = connections_.find(id);
    if (found->second.heard) gone_.push_back(found->second.name);
    peers_.erase(found->second.name);
    connections_.erase(found);
  }

  const ChannelOptions options_;
  std::string endpoint_;
  FileDescriptor listener_, local_, epoll_;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, uint64_t> peers_;
  std::deque<uint64_t> unread_;  // connections whose buffer may hold a frame
  std::vector<std::string> gone_;
  uint64_t last_id_ = kLocal;
  bool accepting_ = true;
  SteadyTime accept_again_;
  FrameLog log_;
};

class DirectClientChannel final : public ClientChannel {
 public:
  DirectClientChannel(const std::string& endpoint, const SocketAddress& address,
                      const ChannelOptions& options)
      : options_(options),
        endpoint_(endpoint),
        address_(address),
        stream_(options.max_message_bytes, options.send_high_water) {
    StartConnect();
  }

  const std::string& endpoint() const override { return endpoint_; }

  absl::Status Send(const MessageLite& message) override {
    const size_t body = message.ByteSizeLong();
    COPPICE_RETURN_IF_ERROR(CheckBodySize(endpoint_, body, options_.max_message_bytes));
    Advance();
    if (!connected_ && breaks_ > 0) {
      return absl::UnavailableError(endpoint_ + ": the connection was lost");
    }
    const absl::Status status =
        stream_.Write(connected_ ? fd_.get() : -1, endpoint_, message, body);
    if (absl::IsUnavailable(status)) Lost();
    if (status.ok()) log_.Sent(kFrameHeaderBytes + body);
    return status;
  }

  bool Receive(MessageLite* message) override {
    Advance();
    for (bool read = false;; read = true) {
      for (auto frame = stream_.Next(); !frame.empty(); frame = stream_.Next()) {
        may_hold_ = true;
        if (!log_.Take(endpoint_, frame, options_.max_message_bytes, message)) continue;
        pause_ = kFirstRetry;  // the peer uses this protocol
        return true;
      }
      may_hold_ = false;
      if (stream_.fault() != FrameFault::kNone) {
        log_.Drop(stream_.fault(), endpoint_, kFrameHeaderBytes);
        Lost();
      } else if (ended_) {
        Lost();
      }
      if (read || !connected_) return false;
      if (!stream_.Flush(fd_.get())) ended_ = true;
      if (!stream_.Read(fd_.get())) ended_ = true;
    }
  }

  uint64_t breaks() const override { return breaks_; }
  Pollable socket() override {
    const bool connecting = fd_.open() && !connected_;
    return {.fd = fd_.get(), .writing = connecting || stream_.writing(), .ready = may_hold_};
  }
  const ChannelCounters& counters() const override { return log_.counters(); }

 private:
  void StartConnect() {
    fd_ = ConnectLocal(address_);
    if (!fd_.open()) {
      auto fd = StartConnectTcp(address_, endpoint_);
      if (!fd.ok()) return RetryLater();
      fd_ = *std::move(fd);
    }
    give_up_ = Now() + kConnectTimeout;
    Advance();
  }

  // Continues a connection attempt, or starts the next one when it is due.
  void Advance() {
    if (connected_) return;
    if (!fd_.open()) {
      if (Now() >= retry_) StartConnect();
      return;
    }
    pollfd waiting = {fd_.get(), POLLOUT, 0};
    if (poll(&waiting, 1, 0) <= 0) {
      if (Now() >= give_up_) RetryLater();
      return;
    }
    if (ConnectError(fd_.get()) != 0) return RetryLater();
    connected_ = true;
    if (!stream_.Flush(fd_.get())) ended_ = true;
  }

  void RetryLater() {
    fd_.Reset();
    retry_ = Now() + pause_;
    pause_ = std::min(2 * pause_, kLastRetry);
  }

  void Lost() {
    if (!connected_) return;
    connected_ = ended_ = may_hold_ = false;
    ++breaks_;
    stream_.Reset();
    RetryLater();
  }

  const ChannelOptions options_;
  const std::string endpoint_;
  const SocketAddress address_;
  FileDescriptor fd_;  // closed if there is no connection; the next attempt is at retry_
  FrameStream stream_;
  bool connected_ = false;
  bool ended_ = false;     // by the peer; frames that were read before are still returned
  bool may_hold_ = false;  // the stream may hold another frame
  uint64_t breaks_ = 0;
  SteadyTime retry_, give_up_;
  std::chrono::milliseconds pause_ = kFirstRetry;
  FrameLog log_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerChannel>> BindDirect(const std::string& endpoint,
                                                          const ChannelOptions& options) {
  auto channel = std::make_unique<DirectServerChannel>(options);
  COPPICE_RETURN_IF_ERROR(channel->Bind(endpoint));
  return channel;
}

absl::StatusOr<std::unique_ptr<ClientChannel>> ConnectDirect(const std::string& endpoint,
                                                             const ChannelOptions& options) {
  COPPICE_ASSIGN_OR_RETURN(const SocketAddress address, ResolveEndpoint(endpoint, false));
  return std::make_unique<DirectClientChannel>(endpoint, address, options);
}

}  // namespace coppice::comm
