// For tests: peers that use ZeroMQ or TCP but do not send our frames.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <zmq.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "comm/tcp_socket.h"
#include "comm/zmq_context.h"

namespace coppice::comm {

class RawZmqPeer {
 public:
  explicit RawZmqPeer(const std::string& endpoint) : socket_(ZMQ_DEALER) {
    socket_.SetOption(ZMQ_SNDHWM, 0);  // unlimited
    zmq_connect(socket_.get(), endpoint.c_str());
  }
  void Send(const std::string& part, int flags = 0) {
    zmq_send(socket_.get(), part.data(), part.size(), flags);
  }

 private:
  ZmqSocket socket_;
};

inline sockaddr_in LoopbackAddress(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

inline int PortOf(const std::string& endpoint) {
  int port = -1;
  EXPECT_TRUE(absl::SimpleAtoi(endpoint.substr(endpoint.rfind(':') + 1), &port)) << endpoint;
  return port;
}

// One end of a TCP connection.
class RawTcpPeer {
 public:
  // With a socket, but not connected yet.
  RawTcpPeer() : RawTcpPeer(FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))) {}
  explicit RawTcpPeer(FileDescriptor fd) : fd_(std::move(fd)) {
    const int on = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  explicit RawTcpPeer(const std::string& endpoint) : RawTcpPeer() { Connect(endpoint); }
  bool Connect(const std::string& endpoint) {  // the endpoint is on this machine
    const sockaddr_in address = LoopbackAddress(PortOf(endpoint));
    return connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  // Returns false if the other end has closed.
  bool Send(const std::string& bytes) {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Receives `size` bytes, or fewer if the other end closes or sends nothing for 5 s.
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    size_t got = 0;
    while (got < size) {
      pollfd waiting = {fd_.get(), POLLIN, 0};
      if (poll(&waiting, 1, 5000) <= 0) break;
      const ssize_t result = recv(fd_.get(), bytes.data() + got, size - got, 0);
      if (result <= 0) break;
      got += static_cast<size_t>(result);
    }
    bytes.resize(got);
    return bytes;
  }
  // True if the other end has closed.
  bool Closed() const {
    char byte;
    const ssize_t result = recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return result == 0 || (result < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  }
  void EndSending() { shutdown(fd_.get(), SHUT_WR); }
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

// Listens on a port of this machine, or on any free port if that one is taken.
class RawTcpServer {
 public:
  explicit RawTcpServer(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = LoopbackAddress(port);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    if (bind(fd_.get(), generic, length) != 0) {
      address.sin_port = 0;
      EXPECT_EQ(bind(fd_.get(), generic, length), 0);
    }
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    EXPECT_EQ(getsockname(fd_.get(), generic, &length), 0);
    endpoint_ = absl::StrCat("direct://127.0.0.1:", ntohs(address.sin_port));
  }
  const std::string& endpoint() const { return endpoint_; }
  // Waits for a connection, at most 5 s.
  RawTcpPeer Accept() {
    pollfd waiting = {fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, 5000) <= 0) return RawTcpPeer(FileDescriptor());
    return RawTcpPeer(FileDescriptor(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }

 private:
  FileDescriptor fd_;
  std::string endpoint_;
};

}  // namespace coppice::comm
