#include "tests/loadgen/null_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace coppice::loadgen {
namespace {

bool SendAll(int socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool SendChunk(int socket, const std::string& data) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return SendAll(socket, size + data + "\r\n");
}

bool SendEvent(int socket, const std::string& json) {
  return SendChunk(socket, "data: " + json + "\n\n");
}

std::string Plain(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

void SleepMs(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

constexpr char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kText[] = R"({"choices":[{"index":0,"text":"x"}],"usage":null})";

}  // namespace

NullServer::NullServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::listen(listener_, 1024);
  socklen_t length = sizeof(address);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

NullServer::~NullServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  std::vector<std::thread> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    arrived_.notify_all();
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::string> NullServer::heads() {
  std::lock_guard<std::mutex> lock(mutex_);
  return heads_;
}

std::string NullServer::base_url() const { return "http://127.0.0.1:" + std::to_string(port_); }

std::vector<std::string> NullServer::bodies() {
  std::lock_guard<std::mutex> lock(mutex_);
  return bodies_;
}

void NullServer::Accept() {
  while (!stopping_) {
    const int socket = ::accept(listener_, nullptr, nullptr);
    if (socket < 0) return;
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::lock_guard<std::mutex> lock(mutex_);
    sockets_.push_back(socket);
    threads_.emplace_back([this, socket] { Serve(socket); });
  }
}

void NullServer::Serve(int socket) {
  std::string in;
  char buffer[4096];
  while (true) {
    const size_t head = in.find("\r\n\r\n");
    size_t body_bytes = 0;
    if (head != std::string::npos) {
      const size_t at = in.find("Content-Length: ");
      if (at < head) body_bytes = std::stoul(in.substr(at + 16));
    }
    if (head != std::string::npos && in.size() >= head + 4 + body_bytes) {
      const std::string head_text = in.substr(0, head);
      const std::string body = in.substr(head + 4, body_bytes);
      in.erase(0, head + 4 + body_bytes);
      if (!Answer(socket, head_text, body)) break;
      continue;
    }
    const ssize_t n = ::recv(socket, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    in.append(buffer, static_cast<size_t>(n));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  sockets_.erase(std::find(sockets_.begin(), sockets_.end(), socket));
  ::close(socket);
}

bool NullServer::Answer(int socket, const std::string& head, const std::string& body) {
  const auto is = [&](const char* start) { return head.rfind(start, 0) == 0; };
  if (is("GET /v1/models ")) {
    return SendAll(socket,
                   Plain("200 OK", R"({"data":[{"id":"null-model","max_model_len":100}]})"));
  }
  if (is("GET /version ")) return SendAll(socket, Plain("200 OK", R"({"version":"null-1"})"));
  if (is("GET ")) return SendAll(socket, Plain("404 Not Found", "{}"));
  if (is("POST /tokenize ")) {
    const nlohmann::json request = nlohmann::json::parse(body);
    const std::string text = request.contains("messages")
                                 ? request["messages"][0]["content"].get<std::string>()
                                 : request["prompt"].get<std::string>();
    const auto spaces = std::count(text.begin(), text.end(), ' ');
    return SendAll(socket, Plain("200 OK", nlohmann::json{{"count", spaces + 2}}.dump()));
  }
  return Complete(socket, head, body);
}

bool NullServer::Complete(int socket, const std::string& head, const std::string& body) {
  const nlohmann::json request = nlohmann::json::parse(body);
  const std::string error = request.value("null_error", "");
  {
    std::unique_lock<std::mutex> lock(mutex_);
    bodies_.push_back(body);
    heads_.push_back(head);
    arrived_.notify_all();
    const size_t wanted = request.value("null_wait_for", size_t{0});
    arrived_.wait(lock, [&] { return stopping_ || bodies_.size() >= wanted; });
  }
  if (error == "status") {
    return SendAll(
        socket, Plain("400 Bad Request", R"({"error":{"message":"no","code":"invalid_value"}})"));
  }
  {
    const std::chrono::duration<double, std::milli> delay(request.value("null_delay_ms", 0.0));
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, delay, [this] { return stopping_.load(); });
  }
  if (!SendAll(socket, kStreamHead)) return false;
  const int tokens = request["max_tokens"].get<int>();
  for (int i = 0; i < tokens; ++i) {
    if (!SendEvent(socket, kText)) return false;
    if (error == "cut") return false;
    if (error == "event") {
      SendEvent(socket, R"({"error":{"message":"gone","code":"replica_lost"}})");
      return SendChunk(socket, "") && false;
    }
    SleepMs(1);
  }
  const nlohmann::json usage = {{"choices", nlohmann::json::array()},
                                {"usage",
                                 {{"prompt_tokens", 3},
                                  {"completion_tokens", tokens},
                                  {"speculation",
                                   {{"rounds", 4},
                                    {"plain_rounds", 1},
                                    {"target_passes", 4},
                                    {"layers", 10},
                                    {"drafted_nodes", 24},
                                    {"accepted_nodes", 9},
                                    {"accepted_by_layer", {6, 3}},
                                    {"accepted_width", 2.5}}}}}};
  return SendEvent(socket, usage.dump()) && SendEvent(socket, "[DONE]") && SendChunk(socket, "");
}

}  // namespace coppice::loadgen
