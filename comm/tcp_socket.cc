#include "comm/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace coppice::comm {
namespace {

constexpr int kKeepIdleS = 5, kKeepIntervalS = 3, kKeepProbes = 3;
constexpr int kUserTimeoutMs = 15000;
constexpr int kBacklog = 128;

void SetOption(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

absl::Status BadEndpoint(const std::string& endpoint, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", endpoint, "': ", why));
}

// "127.0.0.1:7100", "[::1]:7100".
std::string HostAndPort(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
    return absl::StrCat("[", host, "]:", ntohs(v6->sin6_port));
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
  inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", ntohs(v4->sin_port));
}

std::string EndpointOf(const SocketAddress& address) {
  return kDirectScheme + HostAndPort(address);
}

// An abstract name begins with a zero byte. The endpoint is shorter than what fits.
sockaddr_un LocalAddress(const std::string& endpoint, socklen_t* length) {
  const std::string name = absl::StrCat("coppice ", endpoint);
  sockaddr_un local = {};
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return local;
}

FileDescriptor LocalSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

int FileDescriptor::Release() { return std::exchange(fd_, -1); }

void FileDescriptor::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::Status SocketError(const char* what, const std::string& endpoint, int error) {
  return absl::UnavailableError(absl::StrCat(what, " '", endpoint, "': ", std::strerror(error)));
}

absl::StatusOr<SocketAddress> ResolveEndpoint(const std::string& endpoint, bool listen) {
  absl::string_view rest = endpoint;
  if (!absl::ConsumePrefix(&rest, kDirectScheme)) {
    return BadEndpoint(endpoint, "not of the form direct://host:port");
  }
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return BadEndpoint(endpoint, "not of the form direct://host:port");
  }
  std::string host(rest.substr(0, colon));
  const absl::string_view said = rest.substr(colon + 1);
  const std::string port(listen && said == "*" ? "0" : said);
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < (listen ? 0 : 1) || number > 65535) {
    return BadEndpoint(endpoint, absl::StrCat("no port '", port, "'"));
  }
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const bool any = listen && host == "*";
  if (any) hints.ai_family = AF_INET;
  const int error = getaddrinfo(any ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return BadEndpoint(endpoint, absl::StrCat(host, ": ", gai_strerror(error)));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

absl::StatusOr<FileDescriptor> ListenTcp(const std::string& endpoint, std::string* bound) {
  COPPICE_ASSIGN_OR_RETURN(SocketAddress address, ResolveEndpoint(endpoint, true));
  const int family = address.storage.ss_family;
  FileDescriptor fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return SocketError("socket", endpoint, errno);
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (bind(fd.get(), generic, address.length) != 0) return SocketError("bind", endpoint, errno);
  if (listen(fd.get(), kBacklog) != 0) return SocketError("listen", endpoint, errno);
  if (getsockname(fd.get(), generic, &address.length) != 0) {
    return SocketError("getsockname", endpoint, errno);
  }
  *bound = EndpointOf(address);
  return fd;
}

FileDescriptor ListenLocal(const std::string& bound) {
  FileDescriptor fd = LocalSocket();
  socklen_t length = 0;
  const sockaddr_un local = LocalAddress(bound, &length);
  const auto* generic = reinterpret_cast<const sockaddr*>(&local);
  if (fd.open() && (bind(fd.get(), generic, length) != 0 || listen(fd.get(), kBacklog) != 0)) {
    fd.Reset();
  }
  return fd;
}

FileDescriptor ConnectLocal(const SocketAddress& address) {
  FileDescriptor fd = LocalSocket();
  socklen_t length = 0;
  const sockaddr_un local = LocalAddress(EndpointOf(address), &length);
  const auto* generic = reinterpret_cast<const sockaddr*>(&local);
  if (!fd.open() || connect(fd.get(), generic, length) != 0) return FileDescriptor();
  ucred server = {};
  length = sizeof(server);
  const bool known = getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &server, &length) == 0;
  if (!known || (server.uid != geteuid() && server.uid != 0)) fd.Reset();
  return fd;
}

absl::StatusOr<FileDescriptor> StartConnectTcp(const SocketAddress& address,
                                               const std::string& endpoint) {
  FileDescriptor fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return SocketError("socket", endpoint, errno);
  SetStreamOptions(fd.get());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(fd.get(), generic, address.length) != 0 && errno != EINPROGRESS) {
    return SocketError("connect", endpoint, errno);
  }
  return fd;
}

int ConnectError(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  if (error != 0) return error;
  SocketAddress self, peer;
  self.length = peer.length = sizeof(sockaddr_storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&self.storage), &self.length) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return errno;
  }
  const bool itself =
      self.length == peer.length && std::memcmp(&self.storage, &peer.storage, self.length) == 0;
  return itself ? ECONNREFUSED : 0;
}

std::string PeerName(int fd) {
  SocketAddress peer;
  peer.length = sizeof(peer.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return "a peer that is gone";
  }
  if (peer.storage.ss_family != AF_UNIX) return HostAndPort(peer);
  ucred process = {};
  socklen_t length = sizeof(process);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &length) != 0) return "a local process";
  return absl::StrCat("process ", process.pid, " of user ", process.uid);
}

void SetStreamOptions(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

}  // namespace coppice::comm
