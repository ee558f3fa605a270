#include "lab/bench/coordinator/stream_clients.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace coppice::bench {
namespace {

constexpr double kEmptyEvery_s = 0.2;

std::string ChatBody(int number, bool usage) {
  return absl::StrCat(
      R"({"messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":100000,)",
      usage ? R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},)" : "",
      R"("stream":true,"seed":)", number, "}");
}

}  // namespace

int ConnectTo(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket < 0 ||
      ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    std::perror("bench_coordinator: connect");
    std::exit(1);
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

std::string Post(const std::string& path, const std::string& body) {
  return absl::StrCat("POST ", path,
                      " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      "Content-Length: ",
                      body.size(), "\r\n\r\n", body);
}

StreamClients::StreamClients(const StreamOptions& options, const Stamps* stamps)
    : options_(options), stamps_(stamps), epoll_(::epoll_create1(0)), streams_(options.streams) {}

StreamClients::~StreamClients() {
  for (const Stream& stream : streams_) {
    if (stream.socket >= 0) ::close(stream.socket);
  }
  ::close(epoll_);
}

void StreamClients::OpenAll() {
  const int64_t begin_ns = NowNs();
  for (int number = 0; number < options_.streams; ++number) {
    Turn(begin_ns + static_cast<int64_t>(number / options_.opened_per_s * 1e9));
    Open(number);
  }
}

void StreamClients::Open(int number) {
  Stream& stream = streams_[number];
  stream.socket = ConnectTo(options_.port);
  const std::string request = Post("/v1/chat/completions", ChatBody(number, options_.usage));
  if (::send(stream.socket, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return Lose(number);
  ::fcntl(stream.socket, F_SETFL, O_NONBLOCK);
  if (!stamps_->Sampled(static_cast<uint64_t>(number))) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = number;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, stream.socket, &event);
}

void StreamClients::Read(double seconds) { Turn(NowNs() + static_cast<int64_t>(seconds * 1e9)); }

void StreamClients::Turn(int64_t until_ns) {
  epoll_event ready[256];
  do {
    const int count = ::epoll_wait(epoll_, ready, 256, 1);
    for (int i = 0; i < count; ++i) ReadSampled(ready[i].data.fd);
    const int64_t now_ns = NowNs();
    const double elapsed_s = last_turn_ns_ == 0 ? 0 : (now_ns - last_turn_ns_) * 1e-9;
    last_turn_ns_ = now_ns;
    due_ = std::min<double>(due_ + elapsed_s / kEmptyEvery_s * options_.streams, options_.streams);
    for (int few = 0; due_ >= 1 && few < 64; --due_, ++few) {
      Empty(next_emptied_);
      next_emptied_ = (next_emptied_ + 1) % options_.streams;
    }
  } while (NowNs() < until_ns);
}

void StreamClients::Lose(int number) {
  ::close(streams_[number].socket);
  streams_[number].socket = -1;
  ++seen_.ended;
}

void StreamClients::ReadSampled(int number) {
  Stream& stream = streams_[number];
  char bytes[64 << 10];
  const ssize_t n = stream.socket < 0 ? -1 : ::recv(stream.socket, bytes, sizeof(bytes), 0);
  const int64_t now_ns = NowNs();
  if (n < 0 && (errno == EAGAIN || stream.socket < 0)) return;
  if (n <= 0) return Lose(number);
  sampled_bytes_ += n;
  stream.rest.append(bytes, static_cast<size_t>(n));
  if (!stream.answered && stream.rest.size() >= 15) {
    if (!absl::StartsWith(stream.rest, "HTTP/1.1 200")) {
      std::fprintf(stderr, "%s\n", stream.rest.c_str());
      return Lose(number);
    }
    stream.answered = true;
  }
  Take(number, now_ns);
}

// Counts the tokens of the whole lines, by the bytes of their texts.
void StreamClients::Take(int number, int64_t now_ns) {
  constexpr absl::string_view kContent = "\"content\":\"";
  Stream& stream = streams_[number];
  const size_t end = stream.rest.rfind('\n') + 1;
  const absl::string_view lines = absl::string_view(stream.rest).substr(0, end);
  for (size_t at = lines.find(kContent); at != lines.npos; at = lines.find(kContent, at)) {
    at += kContent.size();
    const size_t bytes = lines.find('"', at) - at;
    ++events_;
    for (size_t i = 0; i < bytes / options_.token_bytes; ++i, ++stream.tokens) {
      const std::atomic<int64_t>* sent = stamps_->Of(static_cast<uint64_t>(number), stream.tokens);
      if (began_ns_ > 0 && sent != nullptr)
        seen_.latencies_ms.push_back(static_cast<double>(now_ns - *sent) * 1e-6);
      ++seen_.sampled_tokens;
    }
  }
  stream.rest.erase(0, end);
}

void StreamClients::Empty(int number) {
  Stream& stream = streams_[number];
  if (stream.socket < 0 || stamps_->Sampled(static_cast<uint64_t>(number))) return;
  char head[16];
  const ssize_t n = stream.answered ? ::recv(stream.socket, nullptr, 1 << 20, MSG_TRUNC)
                                    : ::recv(stream.socket, head, sizeof(head), 0);
  if (n < 0 && errno == EAGAIN) return;
  const bool refused = n > 12 && !stream.answered && !absl::StartsWith(head, "HTTP/1.1 200");
  if (n <= 0 || refused) return Lose(number);
  stream.answered = true;
  other_bytes_ += n;
}

void StreamClients::Begin() {
  const int ended = seen_.ended;
  seen_ = {};
  seen_.ended = ended;
  sampled_bytes_ = other_bytes_ = events_ = 0;
  began_ns_ = NowNs();
}

StreamsSeen StreamClients::End() {
  seen_.seconds = (NowNs() - began_ns_) * 1e-9;
  seen_.sampled_events = events_;
  const int sampled = (options_.streams + stamps_->stride() - 1) / stamps_->stride();
  const int others = options_.streams - sampled;
  seen_.sampled_bytes_per_s = static_cast<double>(sampled_bytes_) / sampled / seen_.seconds;
  if (others > 0)
    seen_.other_bytes_per_s = static_cast<double>(other_bytes_) / others / seen_.seconds;
  std::sort(seen_.latencies_ms.begin(), seen_.latencies_ms.end());
  return std::move(seen_);
}

}  // namespace coppice::bench
