// How processes talk: typed Protobuf frames, each a header {magic, protocol version, message kind,
// body length} and the serialized body. A malformed, oversized or foreign frame is counted, logged
// and dropped, never fatal. The endpoint chooses the transport:
//   tcp://host:port     ZeroMQ, the control plane: queues in the background, reconnects under the
//                       same name.
//   direct://host:port  a TCP connection, within a host a Unix socket, that the polling thread
//   itself
//                       reads and writes: one wake-up of a thread for each hop instead of three
//                       (docs/decisions.md).
// Thread-compatible: one thread at a time; what hands a channel over must synchronise, as
// HostThreads::Post and Wait do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"

namespace coppice::comm {

struct ChannelOptions {
  size_t max_message_bytes = 64 << 20;
  int send_high_water = 10000;  // frames queued for one peer before Send returns ResourceExhausted
  // Closing waits in the background at most this long for queued frames to leave.
  int linger_ms = 0;
};

struct ChannelCounters {
  uint64_t sent = 0, received = 0, sent_bytes = 0, received_bytes = 0;
  uint64_t dropped_malformed = 0, dropped_oversized = 0, dropped_version = 0;
};

// What Poll waits for: a ZeroMQ socket, or a file descriptor (-1: nothing).
struct Pollable {
  void* zmq = nullptr;
  int fd = -1;
  bool writing = false;  // wait for room to write as well
  bool ready = false;    // something was read already and waits for Receive
};

// One endpoint that many peers connect to.
class ServerChannel {
 public:
  // endpoint "tcp://127.0.0.1:*" picks a port, "tcp://0.0.0.0:7000" a fixed one; endpoint() tells
  // the real one.
  static absl::StatusOr<std::unique_ptr<ServerChannel>> Bind(const std::string& endpoint,
                                                             const ChannelOptions& options = {});
  virtual ~ServerChannel() = default;
  virtual const std::string& endpoint() const = 0;
  // peer is an opaque identity of the connection, valid while it lives. Unavailable: the peer is
  // gone.
  virtual absl::Status Send(const std::string& peer,
                            const google::protobuf::MessageLite& message) = 0;
  // The next good frame, parsed into *message; nullopt when none is waiting. Never blocks.
  virtual std::optional<std::string> Receive(google::protobuf::MessageLite* message) = 0;
  // Peers that Receive has named and whose connection has ended since the last call. ZeroMQ cannot
  // tell and names none.
  virtual std::vector<std::string> TakeGone() { return {}; }
  virtual Pollable socket() = 0;  // for Poll; ask again before every call
  virtual const ChannelCounters& counters() const = 0;
};

// One connection to a ServerChannel; reconnects by itself when it is used.
class ClientChannel {
 public:
  static absl::StatusOr<std::unique_ptr<ClientChannel>> Connect(const std::string& endpoint,
                                                                const ChannelOptions& options = {});
  virtual ~ClientChannel() = default;
  virtual const std::string& endpoint() const = 0;
  // Queues until the first connection stands. ResourceExhausted: the queue is full; Unavailable:
  // the connection was lost and is not back yet.
  virtual absl::Status Send(const google::protobuf::MessageLite& message) = 0;
  // False when none is waiting. Never blocks.
  virtual bool Receive(google::protobuf::MessageLite* message) = 0;
  // Connections that stood and were lost; what was under way went with them. ZeroMQ cannot tell: 0.
  virtual uint64_t breaks() const { return 0; }
  virtual Pollable socket() = 0;
  virtual const ChannelCounters& counters() const = 0;
};

// Waits until one of the sockets has something to read, at most timeout_ms (-1 = forever). Sets
// ready[i]. False on time-out or interruption by a signal.
bool Poll(absl::Span<const Pollable> sockets, int timeout_ms, std::vector<bool>* ready = nullptr);

// As Poll until `until_s` of SteadyClock, without sleeping: for what was announced and comes within
// microseconds, where a sleep and a wake-up would take longer. Gives way to threads that want the
// core.
bool PollAwake(absl::Span<const Pollable> sockets, double until_s);
inline constexpr double kStayAwake_s = 800e-6;  // after an announcement

// A thread-safe wake-up that can be polled: Notify() from any thread makes the poll of socket()
// return.
class Waker {
 public:
  static std::unique_ptr<Waker> Create();
  virtual ~Waker() = default;
  virtual void Notify() = 0;  // any thread
  virtual void Drain() = 0;   // polling thread: forget the notifications so far
  virtual Pollable socket() = 0;
};

}  // namespace coppice::comm
