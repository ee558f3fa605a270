// HTTP as the API sees it: requests, replies, and one exchange that is answered plainly or by
// server-sent events. No socket and no Beast here; http_server implements HttpExchange, tests fake
// it. One thread: the event loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coppice::coordinator {

struct HttpRequest {
  std::string method;  // "POST"
  std::string target;  // path and query as sent
  std::string path;    // target without the query
  std::string body;
  std::string content_type;    // "" = absent
  std::string timeout_header;  // X-Request-Timeout, "" = absent
  std::string request_id;      // the client's X-Request-Id, else generated
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides the usual ones
};

// The server's side of one request. Reply, or SendEvent... then EndStream; once. Calls after the
// client has gone do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // A further header of the answer, whichever kind it will be; before it is begun.
  virtual void AddHeader(const std::string& name, const std::string& value) = 0;
  virtual void Reply(HttpReply reply) = 0;
  // The answer will be a stream: from now on a silence is filled with `: keep-alive` comments, the
  // first of which sends status and headers.
  virtual void ExpectStream() = 0;
  virtual bool stream_open() const = 0;  // status and headers are on their way
  // One event, `data: ` + data + two line feeds; data has no line feed. Opens the stream if need
  // be.
  virtual void SendEvent(const std::string& data) = 0;
  // Ends the stream; keep_connection false closes the connection after it.
  virtual void EndStream(bool keep_connection) = 0;
  // Called once if the client goes (also by half-close) before the answer has ended.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

class HttpApp {
 public:
  virtual ~HttpApp() = default;
  // Route, method and content type, before the body is read; body empty. An answer refuses the
  // request.
  virtual std::optional<HttpReply> CheckHead(const HttpRequest& request) = 0;
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // After each answer, also those the server itself gave (408, 413, ...). status 0: the client went
  // first.
  virtual void Observe(const HttpRequest& request, int status, double seconds) = 0;
  virtual void SetConnections(int open) = 0;
};

}  // namespace coppice::coordinator
