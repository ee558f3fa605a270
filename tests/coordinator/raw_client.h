// A TCP client that sends raw bytes and reads HTTP answers.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {

struct RawAnswer {
  int status = 0;
  std::string head;  // with the status line, without the empty line
  std::string body;  // without the chunk headers
  bool Has(const std::string& line) const {
    return head.find("\r\n" + line + "\r\n") != std::string::npos;
  }
};

class RawClient {
 public:
  // receive_buffer: bytes that the kernel holds for it; 0: as many as it likes.
  explicit RawClient(int port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += count;
    }
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // For ReadSome: waits before each.
  void ReadSlowly(std::chrono::milliseconds pause) { pause_ = pause; }
  // Returns false at the end of the stream or after ten seconds without data.
  bool ReadSome() {
    std::this_thread::sleep_for(pause_);
    char bytes[65536];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    buffer_.append(bytes, count);
    return true;
  }
  // Reads until the received bytes contain the text. Returns all of them, or "" if it never comes.
  std::string ReadUntil(const std::string& text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!ReadSome()) return "";
    }
    return buffer_;
  }
  // Reads until there are so many received bytes that no answer has taken.
  bool ReadMore(size_t bytes) {
    while (buffer_.size() < bytes) {
      if (!ReadSome()) return false;
    }
    return true;
  }
  // Reads the next status line and headers, as of an answer to HEAD. The status is 0 if the
  // connection ends first.
  RawAnswer ReadHead() {
    RawAnswer answer;
    if (ReadUntil("\r\n\r\n").empty()) return answer;
    const size_t end = buffer_.find("\r\n\r\n");
    answer.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    answer.status = std::stoi(answer.head.substr(9, 3));
    return answer;
  }
  // Reads the next whole answer. Its status is 0 if the connection ends first.
  RawAnswer ReadAnswer() {
    RawAnswer answer = ReadHead();
    const size_t length = answer.head.find("Content-Length: ");
    if (answer.status == 0 || answer.status == 100 || answer.status == 204 || answer.status == 304)
      return answer;
    if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      answer.body = ReadChunks();
    } else if (length != std::string::npos) {
      answer.body = Take(std::stoul(answer.head.substr(length + 16)));
    } else {
      while (ReadSome()) {
      }
      answer.body = std::move(buffer_);
      buffer_.clear();
    }
    return answer;
  }
  bool AtEnd() { return buffer_.empty() && !ReadSome(); }

 private:
  std::string Take(size_t count) {
    while (buffer_.size() < count && ReadSome()) {
    }
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }
  std::string ReadChunks() {
    std::string body;
    while (true) {
      if (ReadUntil("\r\n").empty()) return body;
      const size_t line = buffer_.find("\r\n");
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      buffer_.erase(0, line + 2);
      body += Take(size);
      Take(2);
      if (size == 0) return body;
    }
  }

  int fd_;
  bool connected_ = false;
  std::chrono::milliseconds pause_{0};
  std::string buffer_;
};

inline std::string Post(const std::string& body,
                        const std::string& headers = "Content-Type: application/json\r\n") {
  return absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: x\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}
// A request for an answer of some megabytes, which comes at once. Needs max_body_bytes of 2 MiB.
inline std::string AskForMuch() {
  const std::string body = absl::StrCat(R"({"return_token_strs": true, "prompt": ")",
                                        std::string(1 << 20, 'a'), R"("})");
  return absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                      "\r\n\r\n", body);
}
inline std::string Get(const std::string& path, const std::string& headers = "") {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n");
}

}  // namespace coppice::coordinator
