// Non-blocking sockets for the direct transport: addresses, listening, connecting. A listener at a
// TCP address also listens at a Unix socket of that name (abstract: no file, seen in the same
// network namespace only), where a client of the same host finds it: a round trip takes half the
// time.
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
// the host (all interfaces) and as the port (any). Names are looked up, which may block.
// InvalidArgument names an endpoint that is no address.
absl::StatusOr<SocketAddress> ResolveEndpoint(const std::string& endpoint, bool listen);

// Unavailable: "bind 'direct://...': Address already in use". *bound: the endpoint with its port.
absl::StatusOr<FileDescriptor> ListenTcp(const std::string& endpoint, std::string* bound);
// The Unix socket of a bound endpoint; not open where there can be none.
FileDescriptor ListenLocal(const std::string& bound);

// Connected, when this host serves the address by a process of this user or of root; else not open.
FileDescriptor ConnectLocal(const SocketAddress& address);
// Starts to connect; the socket is writable when that has succeeded or failed.
absl::StatusOr<FileDescriptor> StartConnectTcp(const SocketAddress& address,
                                               const std::string& endpoint);
// 0, or the errno with which connecting failed. A socket that met itself, as can happen where
// nobody listens on a port that the kernel hands out to clients, has failed too.
int ConnectError(int fd);

// No delay of small frames; a peer that vanished without a word is noticed within about 15 s.
void SetStreamOptions(int fd);

absl::Status SocketError(const char* what, const std::string& endpoint, int error);

}  // namespace coppice::comm
