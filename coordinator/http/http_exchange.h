// Formats replies, chunks and events as bytes into an output queue that the session writes.
// Compresses large replies. Event-loop thread.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/fair_queue.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"

namespace coppice::coordinator {

class SessionExchange : public HttpExchange, public std::enable_shared_from_this<SessionExchange> {
 public:
  struct Options {
    std::string request_id;
    bool keep = true;
    bool chunked = true;          // streams are (HTTP/1.1); otherwise they end with the connection
    bool head_only = false;       // HEAD: replies have no body
    bool gzip = false;            // the client prefers replies in this coding
    size_t max_unread_bytes = 0;  // unread bytes that a stream may have
    Client client;                // who takes turns in jobs
    ParsePool* jobs = nullptr;    // compress large replies; nullptr: they are compressed at once
  };
  // headers: of the answer, whatever its kind.
  // wake is called when there is output, when the answer ends, or when the client is lost or does
  // not read.
  SessionExchange(Options options, HttpHeaders headers, std::function<void()> wake);

  void AddHeader(const std::string& name, const std::string& value) override;
  void Reply(HttpReply reply) override;
  void ExpectStream() override { stream_expected_ = true; }
  bool stream_open() const override { return stream_open_; }
  void SendEvent(const StreamEvent& event) override;
  void EndStream(bool keep_connection) override;
  void OnDisconnect(std::function<void()> callback) override;

  // The session's side.
  bool HasOutput() const { return !output_.empty(); }
  std::string TakeOutput();  // the next part of the output
  // The same without taking it: the session then says how much of it it has written.
  const std::string& NextOutput() const { return output_.front(); }
  void Written(size_t bytes);
  bool unread() const {
    return unread_;
  }  // a stream has more output than its client may leave unread
  // Some time has passed without output: opens an expected stream. With comment: also sends one.
  void Silence(bool comment);
  void ClientWent();  // calls the disconnect callback once, unless the whole answer is there
  bool ended() const { return ended_; }
  bool gone() const { return gone_; }
  bool keep() const { return keep_; }
  int status() const { return status_; }

 private:
  static void Compress(HttpReply* reply);
  void CompressInBackground(HttpReply reply);
  void Send(HttpReply reply);
  void OpenStream();
  void AppendChunk(std::initializer_list<absl::string_view> parts);
  void Append(absl::string_view bytes);
  std::string& PartFor(size_t bytes);

  const Options options_;
  bool keep_;
  std::function<void()> wake_;
  std::function<void()> on_disconnect_;
  std::deque<std::string> output_;
  std::string spare_;  // an empty part that has its memory still
  size_t queued_ = 0;  // bytes of a stream in output_
  HttpHeaders headers_;
  bool stream_expected_ = false, stream_open_ = false, ended_ = false, gone_ = false,
       unread_ = false;
  bool replied_ = false;  // Reply was called; the answer has ended once it is compressed
  int status_ = 200;
};

}  // namespace coppice::coordinator
