#include "kernels/cuda/simulator/fake/rank_link.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace coppice::kernels::cuda::fake {
namespace {

constexpr int kWaiting = 64;  // connections that are not accepted yet
constexpr int kSocketType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

// An abstract name: there is no file.
socklen_t Address(const std::string& name, sockaddr_un* address) {
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

int RankLink::Listen(const std::string& name) {
  const int listener = socket(AF_UNIX, kSocketType, 0);
  sockaddr_un address;
  const socklen_t size = Address(name, &address);
  if (listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(listener, kWaiting) == 0) {
    return listener;
  }
  if (listener >= 0) close(listener);
  return -1;
}

std::unique_ptr<RankLink> RankLink::Accept(int listener) {
  const int accepted = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  return accepted < 0 ? nullptr : std::unique_ptr<RankLink>(new RankLink(accepted));
}

std::unique_ptr<RankLink> RankLink::Connect(const std::string& name) {
  const int connected = socket(AF_UNIX, kSocketType, 0);
  if (connected < 0) return nullptr;
  auto link = std::unique_ptr<RankLink>(new RankLink(connected));
  sockaddr_un address;
  const socklen_t size = Address(name, &address);
  if (connect(connected, reinterpret_cast<sockaddr*>(&address), size) != 0) return nullptr;
  return link;
}

RankLink::~RankLink() { close(socket_); }

void RankLink::Send(const std::string& message) {
  const auto size = static_cast<uint32_t>(message.size());
  out_.append(reinterpret_cast<const char*>(&size), sizeof size);
  out_.append(message);
  Pump();
}

bool RankLink::Take(std::string* message) {
  uint32_t size = 0;
  if (in_.size() < sizeof size) return false;
  std::memcpy(&size, in_.data(), sizeof size);
  if (in_.size() < sizeof size + size) return false;
  *message = in_.substr(sizeof size, size);
  in_.erase(0, sizeof size + size);
  return true;
}

void RankLink::Pump() {
  while (!out_.empty()) {
    const ssize_t sent = send(socket_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent > 0) out_.erase(0, sent);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) out_.clear();  // nobody will read it
    if (sent < 0) break;
  }
  char buffer[65536];
  while (!closed_) {
    const ssize_t received = recv(socket_, buffer, sizeof buffer, 0);
    if (received > 0) in_.append(buffer, received);
    if (received < 0 && errno == EINTR) continue;
    closed_ = received == 0 || (received < 0 && errno != EAGAIN);
    if (received < 0) break;
  }
}

}  // namespace coppice::kernels::cuda::fake
