// HTTP/1.1 over Boost.Beast and Asio coroutines, one thread: limits, deadlines and transport errors
// of docs/api.md 3.1, plain answers and server-sent events, disconnect detection. Beast stays
// inside http_session and request_parser.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"

namespace boost::asio {
class io_context;
}

namespace coppice::coordinator {

struct HttpOptions {
  // address:port to listen on; port 0 picks a free one. The default serves only this host. Before
  // you listen on other addresses, give keys (api_keys_file of CoordinatorOptions) and TLS.
  std::string listen = "127.0.0.1:8000";

  // Certificate and private key of TLS, both or none: files in PEM. Without them the server speaks
  // plain HTTP.
  std::string tls_cert_file, tls_key_file;

  // Largest request head, URI and body. A larger one is refused with 431, 414 or 413. Raise
  // max_body_bytes for very long prompts.
  size_t max_header_bytes = 16 << 10;
  size_t max_uri_bytes = 8 << 10;
  size_t max_body_bytes = 4 << 20;

  // Bytes of request bodies that all connections together hold, at most, until the bodies have been
  // read. When more arrive, the largest body that is still arriving is refused with 503. Not less
  // than max_body_bytes.
  size_t max_inflight_body_bytes = 256 << 20;

  // Open connections, at most, and never more than the limit of open files has room for. For one
  // more, the one that has waited longest for a request is closed. If none waits, it gets a 503.
  int max_connections = 10000;

  // Bytes of a stream that its client has not read and the system does not hold. If there are more,
  // the client is disconnected: the server does not wait for it.
  size_t max_unread_bytes = 16 << 20;

  // Seconds that a connection may be idle between requests, that a request head may take to arrive,
  // that a body may take, and that a client may not read before it is disconnected.
  double idle_timeout_s = 75;
  double header_timeout_s = 10;
  double body_timeout_s = 30;
  double write_timeout_s = 60;

  // Seconds of silence in a stream after which it gets a comment line; 0: it gets none. Keep it
  // below the idle timeout of any proxy in between.
  double keep_alive_interval_s = 30;

  // Seconds after which the status and the headers of a stream are sent, though there is no event
  // or comment yet. Clients and proxies may give up when they get nothing.
  double stream_head_after_s = 30;

  // Origins whose web pages may use the API, as CorsPolicy takes them: "https://chat.example.com",
  // or "*" for all. None: pages of other origins can read no answer.
  std::vector<std::string> allowed_origins;
};

// The connections that fit beside the other files of the process, if it may open
// max_open_files in total.
int ConnectionsFor(int wanted, uint64_t max_open_files);

class HttpServer {
 public:
  // Binds and starts accepting on `io`. Errors name the address and the reason. All arguments
  // outlive the server. jobs compress large answers; nullptr: the event loop does.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(boost::asio::io_context* io,
                                                           const HttpOptions& options,
                                                           const Clock* clock, HttpApp* app,
                                                           ParsePool* jobs = nullptr);
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "127.0.0.1:8000"
  virtual bool only_this_host() const = 0;  // it listens on the loopback
  virtual void StopAccepting() = 0;
  virtual bool writing() const = 0;  // a client has not taken all of what it is sent
  // Reads the TLS files again, for future connections. After an error the old ones stay in use.
  virtual absl::Status ReloadTls() = 0;
};

}  // namespace coppice::coordinator
