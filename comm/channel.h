// How processes talk: typed Protobuf frames, each a header {magic, protocol version, message kind,
// body length} and the serialized body. A frame that is malformed, too large or of another protocol
// is counted, logged and dropped; it is never fatal. The endpoint chooses the transport:
//   tcp://host:port     ZeroMQ, for the control plane. Queues in the background, reconnects under
//                       the same name.
//   direct://host:port  A TCP connection, or a Unix socket within a host, that the polling thread
//                       reads and writes itself. A message wakes one thread instead of three
//                       (docs/decisions.md).
// With a cluster key, both ends of every connection prove that they have it before a byte of a
// message is read, and everything is encrypted: ZeroMQ's CURVE, or SecureLink on direct://.
// Thread-compatible: one thread at a time. Handing a channel to another thread needs
// synchronisation, such as HostThreads::Post and Wait.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/cluster_key.h"
#include "google/protobuf/message_lite.h"

namespace coppice::comm {

struct ChannelOptions {
  // Largest body of a frame. Larger frames are dropped and counted. Both ends should agree.
  size_t max_message_bytes = 64 << 20;
  // Frames that may be queued for one peer. Then Send returns ResourceExhausted.
  int send_high_water = 10000;
  // How long queued frames are still sent in the background after closing. Set it where the last
  // message matters (a Goodbye).
  int linger_ms = 0;
  // nullptr: any process that can connect may take part, and nothing is encrypted.
  std::shared_ptr<const ClusterKey> key;
  // With a key: a connection whose handshake takes longer is closed.
  double handshake_deadline_s = 5;
  // ZeroMQ clients: an inproc:// address that gets the events of the connection, beginning with the
  // first (NodeAgent, which must connect to it at once). Empty: none.
  std::string monitor;
};

struct ChannelCounters {
  uint64_t sent = 0, received = 0, sent_bytes = 0, received_bytes = 0;
  uint64_t dropped_malformed = 0, dropped_oversized = 0, dropped_version = 0;
  // Dropped because forged, after the handshake; direct with a key only.
  uint64_t dropped_forged = 0;
  uint64_t refused = 0;  // connections whose other end did not prove the key; direct only
};

// Checks the form of an endpoint, without a look at the network: scheme, host and port. listen: *
// may be the host or the port. InvalidArgument says what is wrong.
absl::Status CheckEndpoint(const std::string& endpoint, bool listen);

// What Poll waits for: a ZeroMQ socket, or a file descriptor (-1: nothing).
struct Pollable {
  void* zmq = nullptr;
  int fd = -1;
  bool writing = false;  // also wait until it can be written to
  bool ready = false;    // a frame has been read and waits for Receive
};

// One endpoint that many peers connect to.
class ServerChannel {
 public:
  // endpoint: "tcp://0.0.0.0:7000", or "tcp://127.0.0.1:*" for any free port. endpoint() returns
  // the actual one.
  static absl::StatusOr<std::unique_ptr<ServerChannel>> Bind(const std::string& endpoint,
                                                             const ChannelOptions& options = {});
  virtual ~ServerChannel() = default;
  virtual const std::string& endpoint() const = 0;
  // peer: the identity of the connection as Receive returned it, valid while the connection lives.
  // Unavailable: the peer is gone.
  virtual absl::Status Send(const std::string& peer,
                            const google::protobuf::MessageLite& message) = 0;
  // Parses the next good frame into *message and returns its peer; nullopt when none is waiting.
  // Never blocks.
  virtual std::optional<std::string> Receive(google::protobuf::MessageLite* message) = 0;
  // Peers returned by Receive whose connection has ended since the last call. ZeroMQ cannot tell:
  // always empty.
  virtual std::vector<std::string> TakeGone() { return {}; }
  virtual Pollable socket() = 0;  // for Poll; get it again before every call
  virtual const ChannelCounters& counters() const = 0;
};

// One connection to a ServerChannel. Reconnects by itself on use.
class ClientChannel {
 public:
  static absl::StatusOr<std::unique_ptr<ClientChannel>> Connect(const std::string& endpoint,
                                                                const ChannelOptions& options = {});
  virtual ~ClientChannel() = default;
  virtual const std::string& endpoint() const = 0;
  // Queues until the first connection is made. ResourceExhausted: the queue is full. Unavailable:
  // the connection was lost and is not back yet.
  virtual absl::Status Send(const google::protobuf::MessageLite& message) = 0;
  // False when none is waiting. Never blocks.
  virtual bool Receive(google::protobuf::MessageLite* message) = 0;
  // Number of connections lost so far; messages in flight were lost with them. ZeroMQ cannot tell:
  // always 0.
  virtual uint64_t breaks() const { return 0; }
  virtual Pollable socket() = 0;
  virtual const ChannelCounters& counters() const = 0;
};

// Waits until one of the sockets has something to read, at most timeout_ms (-1 = forever). Sets
// ready[i]. False on time-out or interruption by a signal.
bool Poll(absl::Span<const Pollable> sockets, int timeout_ms, std::vector<bool>* ready = nullptr);

// Like Poll, until `until_s` of SteadyClock, but spins instead of sleeping. For a message that has
// been announced and comes within microseconds, when sleeping and waking up would take longer.
// Yields to other threads.
bool PollAwake(absl::Span<const Pollable> sockets, double until_s);
inline constexpr double kStayAwake_s = 800e-6;  // seconds after an announcement

// A thread-safe wake-up for Poll: Notify() from any thread makes a poll of socket() return.
class Waker {
 public:
  static std::unique_ptr<Waker> Create();
  virtual ~Waker() = default;
  virtual void Notify() = 0;  // any thread
  virtual void Drain() = 0;   // polling thread: forget the notifications so far
  virtual Pollable socket() = 0;
};

}  // namespace coppice::comm
