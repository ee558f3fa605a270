// The connecting end of the direct transport.
#include <poll.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "comm/channel.h"
#include "comm/frame_log.h"
#include "comm/frame_stream.h"
#include "comm/refusal_log.h"
#include "comm/tcp_socket.h"
#include "comm/transports.h"

namespace coppice::comm {
namespace {

using google::protobuf::MessageLite;

constexpr auto kFirstRetry = std::chrono::milliseconds(50);
constexpr auto kLastRetry = std::chrono::milliseconds(1000);

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
    const bool connecting = fd_.open() && !connected_ && !greeting_;
    const bool writing = connecting || (connected_ && stream_.writing());
    return {.fd = fd_.get(), .writing = writing, .ready = may_hold_};
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
    give_up_ = SteadyNow() + HandshakeTime(options_);
    Advance();
  }

  // Continues a connection attempt, or starts the next one when it is due.
  void Advance() {
    if (connected_) return;
    if (!fd_.open()) {
      if (SteadyNow() >= retry_) StartConnect();
      return;
    }
    if (!greeting_) {
      pollfd waiting = {fd_.get(), POLLOUT, 0};
      if (poll(&waiting, 1, 0) <= 0) {
        if (SteadyNow() >= give_up_) RetryLater();
        return;
      }
      if (ConnectError(fd_.get()) != 0) return RetryLater();
      if (options_.key != nullptr) {
        greeting_ = true;
        stream_.Secure(
            std::make_unique<SecureLink>(SecureLink::End::kConnects, options_.key->link()));
        if (!stream_.Greet(fd_.get())) return RetryLater();
      }
    }
    if (greeting_ && !ProvesItself()) return;
    greeting_ = false;
    connected_ = true;
    if (!stream_.Flush(fd_.get())) ended_ = true;
  }

  // Continues the handshake. True when the server has proved that it has the key.
  bool ProvesItself() {
    const bool lives = stream_.Read(fd_.get());
    if (stream_.ready() && stream_.distrust() == nullptr) {
      ended_ = !lives;
      return true;
    }
    const bool late = SteadyNow() >= give_up_;
    if (lives && !late) return false;
    const char* why = stream_.distrust();
    if (why == nullptr) {
      why = late ? "it did not answer the handshake in time"
                 : "it closed the connection: it has no cluster key, or another one";
    }
    refusals_.Add(endpoint_, "the server", why);
    log_.Refused();
    RetryLater();
    return false;
  }

  void RetryLater() {
    fd_.Reset();
    greeting_ = false;
    retry_ = SteadyNow() + pause_;
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
  bool greeting_ = false;   // connected, and the handshake is under way
  bool connected_ = false;  // connected and trusted
  bool ended_ = false;      // the peer ended it; frames that were read before are still returned
  bool may_hold_ = false;   // the stream may hold another frame
  uint64_t breaks_ = 0;
  SteadyTime retry_, give_up_;
  std::chrono::milliseconds pause_ = kFirstRetry;
  FrameLog log_;
  RefusalLog refusals_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClientChannel>> ConnectDirect(const std::string& endpoint,
                                                             const ChannelOptions& options) {
  COPPICE_ASSIGN_OR_RETURN(const SocketAddress address, ResolveEndpoint(endpoint, false));
  return std::make_unique<DirectClientChannel>(endpoint, address, options);
}

}  // namespace coppice::comm
