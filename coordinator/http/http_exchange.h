// Formats replies, stream heads, chunks and events as bytes into an output queue that the session
// writes. Event-loop thread.
#pragma once

#include <functional>
#include <string>

#include "coordinator/http/http.h"

namespace coppice::coordinator {

// A whole answer with its head.
std::string FormatReply(const HttpReply& reply, const std::string& request_id,
                        bool keep_connection);

class SessionExchange : public HttpExchange {
 public:
  // chunked: streams are chunked (HTTP/1.1); otherwise they end with the connection. wake is called
  // when there is output, when the answer ends, or when the client is lost.
  SessionExchange(std::string request_id, bool keep, bool chunked, std::function<void()> wake);

  void AddHeader(const std::string& name, const std::string& value) override;
  void Reply(HttpReply reply) override;
  void ExpectStream() override { stream_expected_ = true; }
  bool stream_open() const override { return stream_open_; }
  void SendEvent(const std::string& data) override;
  void EndStream(bool keep_connection) override;
  void OnDisconnect(std::function<void()> callback) override;

  // The session's side.
  bool HasOutput() const { return !output_.empty(); }
  std::string TakeOutput();
  void Silence();     // call when keep_alive_interval has passed without output
  void ClientWent();  // calls the disconnect callback once, unless the answer has ended
  bool ended() const { return ended_; }
  bool gone() const { return gone_; }
  bool keep() const { return keep_; }
  int status() const { return status_; }

 private:
  void OpenStream();
  void AppendChunk(const std::string& bytes);

  const std::string request_id_;
  bool keep_;
  const bool chunked_;
  std::function<void()> wake_;
  std::function<void()> on_disconnect_;
  std::string output_;
  std::vector<std::pair<std::string, std::string>> headers_;
  bool stream_expected_ = false, stream_open_ = false, ended_ = false, gone_ = false;
  int status_ = 200;
};

}  // namespace coppice::coordinator
