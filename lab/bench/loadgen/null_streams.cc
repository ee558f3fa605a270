// A server that streams made-up completions to very many clients from one thread: the other end of
// streams.py. Every stream sends EVENTS events, one each INTERVAL_MS, whatever the request
// asks, then usage and [DONE]. Streams keep to their own times, so late ones catch up.
//
//   bench_null_streams PORT EVENTS INTERVAL_MS
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string Chunk(const std::string& data) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

std::string Plain(const char* status, const std::string& body) {
  return std::string("HTTP/1.1 ") + status + "\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Stream {
  std::string in, out;  // what has arrived of a request; what the socket has not taken yet
  int sent = -1;        // events of the answer; -1 = no answer is under way
};

class NullStreams {
 public:
  NullStreams(int port, int events, double interval_ms)
      : events_(events),
        interval_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double, std::milli>(interval_ms))) {
    const std::string usage = R"({"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":)" +
                              std::to_string(events) + "}}";
    end_ = Chunk("data: " + usage + "\n\n") + Chunk("data: [DONE]\n\n") + "0\r\n\r\n";
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(listener_, 4096) != 0) {
      std::perror("bench_null_streams: listen");
      std::exit(1);
    }
    Watch(listener_, EPOLLIN);
  }

  [[noreturn]] void Run() {
    std::vector<epoll_event> ready(512);
    while (true) {
      const int count =
          ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), WaitMs());
      for (int i = 0; i < count; ++i) {
        if (ready[i].data.fd == listener_) {
          Accept();
        } else {
          Receive(ready[i].data.fd);
        }
      }
      SendDue();
    }
  }

 private:
  using Due = std::pair<Clock::time_point, int>;  // when the next event of a socket is due

  void Watch(int socket, uint32_t what) {
    epoll_event event{};
    event.events = what;
    event.data.fd = socket;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
  }

  int WaitMs() const {
    if (due_.empty()) return -1;
    const auto left = due_.top().first - Clock::now();
    return left.count() <= 0 ? 0 : 1;
  }

  void Accept() {
    while (true) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
      if (socket < 0) return;
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      streams_[socket] = {};
      Watch(socket, EPOLLIN);
    }
  }

  void Receive(int socket) {
    char buffer[16 << 10];
    Stream& stream = streams_[socket];
    while (true) {
      const ssize_t n = ::recv(socket, buffer, sizeof(buffer), 0);
      if (n > 0) {
        stream.in.append(buffer, static_cast<size_t>(n));
        continue;
      }
      if (n == 0 || errno != EAGAIN) return End(socket);
      break;
    }
    const size_t head = stream.in.find("\r\n\r\n");
    if (head == std::string::npos || stream.sent >= 0) return;
    const size_t at = stream.in.find("Content-Length: ");
    const size_t body = at < head ? std::strtoul(stream.in.c_str() + at + 16, nullptr, 10) : 0;
    if (stream.in.size() < head + 4 + body) return;
    const bool post = stream.in.rfind("POST ", 0) == 0;
    const bool models = stream.in.rfind("GET /v1/models ", 0) == 0;
    stream.in.erase(0, head + 4 + body);
    if (!post) {
      stream.out += models ? Plain("200 OK", R"({"data":[{"id":"null-streams"}]})")
                           : Plain("404 Not Found", "{}");
      Send(socket);
      return;
    }
    stream.out +=
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.sent = 0;
    due_.push({Clock::now() + interval_, socket});
  }

  void SendDue() {
    while (!due_.empty() && due_.top().first <= Clock::now()) {
      const auto [when, socket] = due_.top();
      due_.pop();
      const auto found = streams_.find(socket);
      if (found == streams_.end() || found->second.sent < 0) continue;
      Stream& stream = found->second;
      stream.out += event_;
      if (++stream.sent == events_) {
        stream.out += end_;
        stream.sent = -1;
      } else {
        due_.push({when + interval_, socket});
      }
      Send(socket);
    }
  }

  // What does not fit is sent with the next event.
  void Send(int socket) {
    Stream& stream = streams_[socket];
    const ssize_t n = ::send(socket, stream.out.data(), stream.out.size(), MSG_NOSIGNAL);
    if (n > 0) stream.out.erase(0, static_cast<size_t>(n));
    if (n < 0 && errno != EAGAIN) End(socket);
  }

  void End(int socket) {
    streams_.erase(socket);
    ::close(socket);
  }

  const int events_;
  const Clock::duration interval_;
  const std::string event_ =
      Chunk(R"(data: {"id":"cmpl-0","object":"text_completion","created":1,"model":"null-streams",)"
            R"("choices":[{"index":0,"text":" word","finish_reason":null,"logprobs":null}],)"
            R"("usage":null})"
            "\n\n");
  std::string end_;
  int epoll_ = ::epoll_create1(0), listener_ = -1;
  std::unordered_map<int, Stream> streams_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace

int main(int argc, char** argv) {
  int port = 0, events = 0;
  double interval_ms = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[1], &port) || !absl::SimpleAtoi(argv[2], &events) ||
      !absl::SimpleAtod(argv[3], &interval_ms)) {
    std::fprintf(stderr, "usage: bench_null_streams PORT EVENTS INTERVAL_MS\n");
    return 2;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  NullStreams(port, events, interval_ms).Run();
}
