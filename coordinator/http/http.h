// HTTP as the API sees it: requests, replies, and an exchange that is answered with one body or
// with server-sent events. No socket and no Beast: http_server implements HttpExchange, tests have
// a fake. Event-loop thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/trace_context.h"

namespace coppice::coordinator {

// The form that errors have: that of OpenAI, of Anthropic for the endpoints of its API, or a page.
enum class ErrorForm { kOpenAi, kAnthropic, kPage };

// A server-sent event.
struct StreamEvent {
  std::string data;  // without a line feed
  std::string name;  // "" = it has none
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string target;  // as sent
  std::string path;    // TargetPath of the target
  std::string body;
  std::shared_ptr<void> body_share;  // counts the body as held in memory until both are freed
  std::string content_type;          // "" = absent
  std::string content_encoding;      // "" = absent
  std::string accept_encoding;       // "" = absent
  std::string accept;                // "" = absent
  std::string if_none_match;         // "" = absent
  std::string timeout_header;        // X-Request-Timeout, "" = absent
  std::string authorization;         // "" = absent; a secret
  std::string api_key;               // X-Api-Key, "" = absent; a secret
  ErrorForm error_form = ErrorForm::kOpenAi;  // of its endpoint. CheckHead fills it
  std::string caller;           // name of its key; "" = it has none. CheckHead fills it
  double weight = 1;            // of its key. CheckHead fills it
  std::string address;          // address of the client, without port; "" = not known
  bool from_this_host = false;  // the client is on the host of the server
  bool has_origin = false;      // an Origin header: a browser may have sent it for any web page
  std::string origin;           // that header
  std::string host;             // the Host header; "" = absent
  std::string request_id;       // the client's X-Request-Id, else generated
  std::vector<std::string> traceparents, tracestates;  // headers of these names
  TraceContext trace;                                  // a span of its own. CheckHead fills it
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // besides the usual ones
  bool coded = false;   // the body has the coding that the headers name, and is sent as it is
};

// The server's side of one request. Call Reply once, or SendEvent any number of times and then
// EndStream. Calls after the client has disconnected do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // Adds a header to the answer, of either kind. Call it before the answer begins.
  virtual void AddHeader(const std::string& name, const std::string& value) = 0;
  virtual void Reply(HttpReply reply) = 0;
  // Announces a stream: after some silence status and headers are sent, and `: keep-alive` comments
  // unless they are switched off.
  virtual void ExpectStream() = 0;
  virtual bool stream_open() const = 0;  // status and headers have been sent
  // Sends one event: `event: ` and its name in a line, if it has one; `data: `, data, two line
  // feeds. Opens the stream if necessary.
  virtual void SendEvent(const StreamEvent& event) = 0;
  // Ends the stream. keep_connection false: closes the connection after it.
  virtual void EndStream(bool keep_connection) = 0;
  // The callback is called once if the client disconnects (also by half-close) before the answer
  // has ended.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

class HttpApp {
 public:
  virtual ~HttpApp() = default;
  // Checks route, method, key and content type before the body is read; body is empty. A reply
  // refuses the request, or answers it without its body. Fills caller, weight, trace and
  // error_form.
  virtual std::optional<HttpReply> CheckHead(HttpRequest* request) = 0;
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // Called after each answer, also for those of the server itself (408, 413, ...). status 0: the
  // client disconnected before.
  virtual void Observe(const HttpRequest& request, int status, double seconds) = 0;
  virtual void SetConnections(int open) = 0;
  // The form of errors of the server itself about a request with this path.
  virtual ErrorForm FormOfErrors(const std::string& path) const {
    (void)path;
    return ErrorForm::kOpenAi;
  }
};

}  // namespace coppice::coordinator
