// Non-blocking sockets for the direct transport: addresses, listening, connecting. A listener at a
// TCP address also listens at an abstract Unix socket of that name (no file; visible in the same
// network namespace only). Clients on the same host use it: a round trip takes half the time.
#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"

namespace coppice::comm {

inline constexpr char kDirectScheme[] = "direct://";

// Closes its file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release();
  void Reset(int fd = -1);

 private:
  int fd_;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

// "direct://127.0.0.1:7100", "direct://[::1]:7100", "direct://host:7100"; for a listener also * as
// the host (all interfaces) and as the port (any). Looks up names, which may block. InvalidArgument
// names an endpoint that is not an address.
absl::StatusOr<SocketAddress> ResolveEndpoint(const std::string& endpoint, bool listen);

// Unavailable: "bind 'direct://...': Address already in use". *bound: the endpoint with its port.
absl::StatusOr<FileDescriptor> ListenTcp(const std::string& endpoint, std::string* bound);
// Listens at the Unix socket of a bound endpoint. The result is not open if that is not possible.
FileDescriptor ListenLocal(const std::string& bound);

// Connects over the Unix socket if a process of this user or of root listens there; else not open.
FileDescriptor ConnectLocal(const SocketAddress& address);
// Starts connecting. The socket becomes writable when that has succeeded or failed.
absl::StatusOr<FileDescriptor> StartConnectTcp(const SocketAddress& address,
                                               const std::string& endpoint);
// 0, or the errno of the failed connection. A socket that connected to itself counts as failed;
// that can happen on an ephemeral port where nobody listens.
int ConnectError(int fd);

// Who is at the other end, for the log: "10.0.0.7:41234", or "process 4242 of user 1000".
std::string PeerName(int fd);

// Sends small frames without delay. Detects a peer that vanished silently within about 15 s.
void SetStreamOptions(int fd);

absl::Status SocketError(const char* what, const std::string& endpoint, int error);

}  // namespace coppice::comm
