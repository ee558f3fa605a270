// The listening end of the direct transport: the polling thread itself reads and writes its
// connections.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "comm/channel.h"
#include "comm/frame_log.h"
#include "comm/frame_stream.h"
#include "comm/refusal_log.h"
#include "comm/tcp_socket.h"
#include "comm/transports.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {
namespace {

using google::protobuf::MessageLite;

constexpr auto kAcceptAgain = std::chrono::seconds(1);  // pause if no file descriptor is left

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
    if (options_.key == nullptr) return absl::OkStatus();
    timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_.open()) return SocketError("timerfd_create", endpoint, errno);
    Watch(EPOLL_CTL_ADD, timer_.get(), kTimer, EPOLLIN);
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
        unread_.push_back(id);  // let the other connections take their turn
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
  static constexpr uint64_t kListener = 0, kLocal = 1, kTimer = 2;  // connections come after these
  static constexpr int kMostTurns = 4;
  // Connections whose handshake is under way, at most. One more, and the oldest is closed.
  static constexpr size_t kMostStrangers = 256;

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
    if (!accepting_ && SteadyNow() >= accept_again_) Accepting(true);
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kListener || id == kLocal) {
        Accept((id == kListener ? listener_ : local_).get());
      } else if (id == kTimer) {
        RefuseLateStrangers();
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
    if (!connection.stream.ready()) {
      const char* why = connection.stream.distrust();
      if (connection.ended) Refuse(id, why != nullptr ? why : "it closed the connection");
      return;
    }
    strangers_.erase(id);
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
          accept_again_ = SteadyNow() + kAcceptAgain;
        }
        return;
      }
      SetStreamOptions(fd.get());
      const uint64_t id = ++last_id_;
      Watch(EPOLL_CTL_ADD, fd.get(), id, EPOLLIN);
      const std::string name = absl::StrCat("direct-", id);
      peers_[name] = id;
      FrameStream stream(options_.max_message_bytes, options_.send_high_water);
      if (options_.key != nullptr) {
        stream.Secure(
            std::make_unique<SecureLink>(SecureLink::End::kListens, options_.key->link()));
        AddStranger(id);
      }
      connections_.emplace(id, Connection{std::move(fd), std::move(stream), name});
    }
  }

  void AddStranger(uint64_t id) {
    if (strangers_.size() >= kMostStrangers) {
      Refuse(strangers_.begin()->first, "too many others are waiting");
    }
    strangers_[id] = SteadyNow() + HandshakeTime(options_);
    if (strangers_.size() == 1) SetTimer();
  }

  // The timer rings when the time of the oldest stranger is over, or before.
  void SetTimer() {
    if (strangers_.empty()) return;
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        strangers_.begin()->second - SteadyNow());
    const int64_t ns = std::max<int64_t>(left.count(), 1);
    itimerspec spec = {};
    spec.it_value = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)timerfd_settime(timer_.get(), 0, &spec, nullptr);
  }

  void RefuseLateStrangers() {
    uint64_t rings;
    (void)!read(timer_.get(), &rings, sizeof(rings));
    while (!strangers_.empty() && strangers_.begin()->second <= SteadyNow()) {
      Refuse(strangers_.begin()->first, "it did not finish the handshake in time");
    }
    SetTimer();
  }

  void Refuse(uint64_t id, absl::string_view why) {
    refusals_.Add(endpoint_, PeerName(connections_.at(id).fd.get()), why);
    log_.Refused();
    strangers_.erase(id);
    Close(id);
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
  FileDescriptor timer_;  // used only with a key
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, uint64_t> peers_;
  std::deque<uint64_t> unread_;  // connections whose buffer may hold a frame
  std::vector<std::string> gone_;
  std::map<uint64_t, SteadyTime> strangers_;  // deadlines of the handshakes, oldest first
  uint64_t last_id_ = kTimer;
  bool accepting_ = true;
  SteadyTime accept_again_;
  FrameLog log_;
  RefusalLog refusals_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerChannel>> BindDirect(const std::string& endpoint,
                                                          const ChannelOptions& options) {
  auto channel = std::make_unique<DirectServerChannel>(options);
  COPPICE_RETURN_IF_ERROR(channel->Bind(endpoint));
  return channel;
}

}  // namespace coppice::comm
