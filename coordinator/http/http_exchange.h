// Formats replies, stream heads, chunks and events as bytes into an output queue that the session
// writes. Event-loop thread.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

// What precedes the body of a whole answer.
std::string FormatHead(const HttpReply& reply, const std::string& request_id, bool keep_connection);

class SessionExchange : public HttpExchange {
 public:
  struct Options {
    std::string request_id;
    bool keep = true;
    bool chunked = true;          // streams are (HTTP/1.1); otherwise they end with the connection
    size_t max_unread_bytes = 0;  // unread bytes that a stream may have
  };
  // wake is called when there is output, when the answer ends, or when the client is lost or does
  // not read.
  SessionExchange(Options options, std::function<void()> wake);

  void AddHeader(const std::string& name, const std::string& value) override;
  void Reply(HttpReply reply) override;
  void ExpectStream() override { stream_expected_ = true; }
  bool stream_open() const override { return stream_open_; }
  void SendEvent(const std::string& data) override;
  void EndStream(bool keep_connection) override;
  void OnDisconnect(std::function<void()> callback) override;

  // The session's side.
  bool HasOutput() const { return !output_.empty(); }
  std::string TakeOutput();  // the next part of the output
  bool unread() const {
    return unread_;
  }                   // a stream has more output than its client may leave unread
  void Silence();     // call when keep_alive_interval has passed without output
  void ClientWent();  // calls the disconnect callback once, unless the answer has ended
  bool ended() const { return ended_; }
  bool gone() const { return gone_; }
  bool keep() const { return keep_; }
  int status() const { return status_; }

 private:
  void OpenStream();
  void AppendChunk(const std::string& bytes);
  void Append(absl::string_view bytes);

  const Options options_;
  bool keep_;
  std::function<void()> wake_;
  std::function<void()> on_disconnect_;
  std::deque<std::string> output_;
  size_t queued_ = 0;  // bytes of a stream in output_
  std::vector<std::pair<std::string, std::string>> headers_;
  bool stream_expected_ = false, stream_open_ = false, ended_ = false, gone_ = false,
       unread_ = false;
  int status_ = 200;
};

}  // namespace coppice::coordinator
