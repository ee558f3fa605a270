#include "lab/bench/coordinator/request_clients.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "lab/bench/coordinator/stamps.h"
#include "lab/bench/coordinator/stream_clients.h"

namespace coppice::bench {
namespace {

// An answer fits into one read: it has a token.
constexpr size_t kAnswer = 16 << 10;

}  // namespace

RequestsSeen AskRepeatedly(int port, int clients, double pause_s, double warm_s, double seconds) {
  const std::string request =
      Post("/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":1})");
  struct Client {
    int socket;
    int64_t sent_ns;
  };
  std::vector<Client> all(clients);
  const int epoll = ::epoll_create1(0);
  const auto ask = [&](Client* client) {
    client->sent_ns = NowNs();
    return ::send(client->socket, request.data(), request.size(), MSG_NOSIGNAL) > 0;
  };
  for (int i = 0; i < clients; ++i) {
    all[i].socket = ConnectTo(port);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = i;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].socket, &event);
    ask(&all[i]);
  }
  RequestsSeen seen;
  const int64_t counted_ns = NowNs() + static_cast<int64_t>(warm_s * 1e9);
  const int64_t end_ns = counted_ns + static_cast<int64_t>(seconds * 1e9);
  while (NowNs() < end_ns) {
    epoll_event ready[256];
    const int count = ::epoll_wait(epoll, ready, 256, 100);
    for (int i = 0; i < count; ++i) {
      Client& client = all[ready[i].data.fd];
      char bytes[kAnswer];
      const ssize_t n = ::recv(client.socket, bytes, sizeof(bytes), 0);
      const int64_t now_ns = NowNs();
      const bool good = n > 12 && absl::StartsWith(bytes, "HTTP/1.1 200");
      if (!good) ++seen.failed;
      if (good && now_ns >= counted_ns)
        seen.latencies_ms.push_back(static_cast<double>(now_ns - client.sent_ns) * 1e-6);
      if (pause_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
      if (n <= 0 || !ask(&client)) ::epoll_ctl(epoll, EPOLL_CTL_DEL, client.socket, nullptr);
    }
  }
  for (const Client& client : all) ::close(client.socket);
  ::close(epoll);
  seen.seconds = seconds;
  std::sort(seen.latencies_ms.begin(), seen.latencies_ms.end());
  return seen;
}

}  // namespace coppice::bench
