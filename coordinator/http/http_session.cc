#include "coordinator/http/http_session.h"

#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <spdlog/spdlog.h>
#include <strings.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http_exchange.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

std::string NewRequestId() {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat("req-", absl::Hex(engine(), absl::kZeroPad16));
}

bool GoodRequestId(const std::string& id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' ||
          c == '-'))
      return false;
  }
  return true;
}

// Cancels the socket's pending operations when the time is up, until disarmed.
class Deadline : public std::enable_shared_from_this<Deadline> {
 public:
  explicit Deadline(tcp::socket* socket) : socket_(socket), timer_(socket->get_executor()) {}
  void Arm(double seconds) {
    expired_ = false;
    timer_.expires_after(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
    timer_.async_wait([self = shared_from_this()](error_code ec) {
      if (ec || self->socket_ == nullptr) return;
      self->expired_ = true;
      error_code ignored;
      self->socket_->cancel(ignored);
    });
  }
  void Disarm() { timer_.cancel(); }
  void Detach() {
    socket_ = nullptr;
    timer_.cancel();
  }
  bool expired() const { return expired_; }

 private:
  tcp::socket* socket_;
  asio::steady_timer timer_;
  bool expired_ = false;
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(std::shared_ptr<HttpServerState> state, tcp::socket socket)
      : state_(std::move(state)),
        socket_(std::move(socket)),
        wake_(socket_.get_executor()),
        deadline_(std::make_shared<Deadline>(&socket_)) {
    ++state_->connections;
    state_->app->SetConnections(state_->connections);
  }
  ~HttpSession() {
    deadline_->Detach();
    --state_->connections;
    state_->app->SetConnections(state_->connections);
  }

  // self keeps the session alive while the coroutine runs.
  asio::awaitable<void> Run(std::shared_ptr<HttpSession> self, bool over_limit) {
    if (over_limit) {
      const ApiError error{503, "too_many_connections", "the server has too many open connections",
                           "", 1};
      co_await Refuse(error);
    } else {
      while (co_await OneRequest()) {
      }
    }
    error_code ignored;
    socket_.close(ignored);
    (void)self;
  }

 private:
  // True when the connection stays open for another request.
  asio::awaitable<bool> OneRequest() {
    request_ = HttpRequest();
    request_.request_id = NewRequestId();
    if (buffer_.size() == 0 && !co_await WaitForFirstByte()) co_return false;
    started_s_ = state_->clock->NowSeconds();
    Parser parser;
    if (!co_await ReadHead(&parser)) co_return false;
    std::optional<HttpReply> refusal = state_->app->CheckHead(request_);
    const bool expects =
        strcasecmp(std::string(parser.get()[http::field::expect]).c_str(), "100-continue") == 0;
    if (refusal && expects) {
      co_await Finish(*refusal, /*keep=*/false);
      co_return false;
    }
    if (!co_await ReadBody(&parser, expects)) co_return false;
    const bool keep = parser.get().keep_alive();
    const bool chunked = parser.get().version() >= 11;
    request_.body = std::move(parser.get().body());
    if (refusal) co_return co_await Finish(*refusal, keep);
    co_return co_await Answer(keep, chunked);
  }

  asio::awaitable<bool> WaitForFirstByte() {
    error_code ec;
    deadline_->Arm(state_->options.idle_timeout_s);
    const size_t count =
        co_await socket_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    if (ec) co_return false;
    buffer_.commit(count);
    co_return true;
  }

  asio::awaitable<bool> ReadHead(Parser* parser) {
    parser->header_limit(static_cast<uint32_t>(state_->options.max_header_bytes));
    parser->body_limit(std::numeric_limits<uint64_t>::max());  // Content-Length is checked below
    error_code ec;
    deadline_->Arm(state_->options.header_timeout_s);
    co_await http::async_read_header(socket_, buffer_, *parser, redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    if (ec) {
      if (std::optional<ApiError> error = HeadError(ec, *parser)) co_await Refuse(*error);
      co_return false;
    }
    const auto& head = parser->get();
    request_.method = std::string(head.method_string());
    request_.target = std::string(head.target());
    request_.path = request_.target.substr(0, request_.target.find('?'));
    request_.content_type = std::string(head[http::field::content_type]);
    request_.timeout_header = std::string(head["X-Request-Timeout"]);
    std::optional<ApiError> error = CheckLimits(*parser);
    if (const auto id = head.find("X-Request-Id"); id != head.end()) {
      if (GoodRequestId(std::string(id->value()))) {
        request_.request_id = std::string(id->value());
      } else if (!error) {
        error =
            ApiError{400, "invalid_header", "X-Request-Id must be 1 to 128 of A-Z a-z 0-9 . _ : -"};
      }
    }
    if (error) co_await Refuse(*error);
    co_return !error;
  }

  std::optional<ApiError> CheckLimits(const Parser& parser) const {
    const auto& head = parser.get();
    const HttpOptions& limits = state_->options;
    if (request_.target.size() > limits.max_uri_bytes) return UriTooLong();
    if (head.count(http::field::content_length) > 0 &&
        head.count(http::field::transfer_encoding) > 0) {
      return ApiError{400, "invalid_header", "Content-Length together with Transfer-Encoding"};
    }
    if (head.count(http::field::transfer_encoding) > 0 && !parser.chunked()) {
      return ApiError{400, "invalid_header", "Transfer-Encoding: only chunked is supported"};
    }
    if (const auto length = parser.content_length(); length && *length > limits.max_body_bytes)
      return BodyTooLarge();
    return std::nullopt;
  }

  ApiError UriTooLong() const {
    return {414, "uri_too_long",
            absl::StrCat("the URI exceeds ", state_->options.max_uri_bytes, " bytes")};
  }
  ApiError BodyTooLarge() const {
    return {413, "body_too_large",
            absl::StrCat("the body exceeds ", state_->options.max_body_bytes, " bytes")};
  }

  // The error of a bad request head. nullopt if the client has gone.
  std::optional<ApiError> HeadError(const error_code& ec, const Parser& parser) const {
    if (deadline_->expired())
      return ApiError{408, "client_too_slow", "the request head did not arrive in time"};
    if (ec == http::error::end_of_stream || ec == asio::error::eof ||
        ec == http::error::partial_message || ec == asio::error::connection_reset ||
        ec == asio::error::operation_aborted) {
      return std::nullopt;
    }
    if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
      const bool in_request_line = parser.get().target().empty();
      if (in_request_line && buffer_.size() > state_->options.max_uri_bytes) return UriTooLong();
      return ApiError{
          431, "headers_too_large",
          absl::StrCat("the request head exceeds ", state_->options.max_header_bytes, " bytes")};
    }
    return ApiError{400, "invalid_header", absl::StrCat("malformed HTTP request: ", ec.message())};
  }

  asio::awaitable<bool> ReadBody(Parser* parser, bool expects) {
    if (parser->is_done()) co_return true;
    parser->body_limit(state_->options.max_body_bytes);
    error_code ec;
    deadline_->Arm(state_->options.body_timeout_s);
    if (expects) {
      const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(socket_, asio::buffer(go), redirect_error(use_awaitable, ec));
    }
    if (!ec)
      co_await http::async_read(socket_, buffer_, *parser, redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    if (!ec) co_return true;
    if (deadline_->expired()) {
      const ApiError error{408, "client_too_slow", "the request body did not arrive in time"};
      co_await Refuse(error);
    } else if (ec == http::error::body_limit) {
      const ApiError error = BodyTooLarge();
      co_await Refuse(error);
    } else if (ec.category() == http::make_error_code(http::error::bad_chunk).category() &&
               ec != http::error::partial_message && ec != http::error::end_of_stream) {
      const ApiError error{400, "invalid_header",
                           absl::StrCat("malformed HTTP body: ", ec.message())};
      co_await Refuse(error);
    }
    co_return false;
  }

  // Refuses a request at the transport level. Answers, then closes gently: a reset could destroy
  // the answer.
  asio::awaitable<void> Refuse(const ApiError& error) {
    // Not a temporary: GCC 12 copies temporaries in a co_await expression byte by byte.
    const HttpReply reply = ErrorReply(error);
    co_await Finish(reply, /*keep=*/false);
  }

  asio::awaitable<bool> Finish(const HttpReply& reply, bool keep) {
    const std::string bytes = FormatReply(reply, request_.request_id, keep);
    const bool written = co_await Write(bytes);
    state_->app->Observe(request_, reply.status,
                         started_s_ > 0 ? state_->clock->NowSeconds() - started_s_ : 0);
    if (!keep) co_await Linger();
    co_return keep&& written;
  }

  asio::awaitable<bool> Write(const std::string& bytes) {
    error_code ec;
    deadline_->Arm(state_->options.write_timeout_s);
    co_await asio::async_write(socket_, asio::buffer(bytes), redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    co_return !ec;
  }

  // Half-closes and reads what the client still sends, for a second at most.
  asio::awaitable<void> Linger() {
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
    std::string sink(16384, '\0');
    deadline_->Arm(1.0);
    while (!ec && !deadline_->expired()) {
      co_await socket_.async_read_some(asio::buffer(sink), redirect_error(use_awaitable, ec));
    }
    deadline_->Disarm();
  }

  // Gives the request to the app and writes its output. Watches for a disconnect.
  asio::awaitable<bool> Answer(bool keep, bool chunked) {
    auto exchange = std::make_shared<SessionExchange>(request_.request_id, keep, chunked,
                                                      [this] { wake_.cancel(); });
    const HttpRequest seen = Summary();
    Watch(exchange);
    state_->app->Handle(std::move(request_), exchange);
    bool written = true;
    while (written && !exchange->gone()) {
      if (exchange->HasOutput()) {
        const std::string bytes = exchange->TakeOutput();
        written = co_await Write(bytes);
      } else if (exchange->ended()) {
        break;
      } else {
        co_await WaitForOutput(exchange.get());
      }
    }
    if (!written) exchange->ClientWent();
    co_await StopWatching();
    const bool gone = !written || exchange->gone();
    state_->app->Observe(seen, gone ? 0 : exchange->status(),
                         state_->clock->NowSeconds() - started_s_);
    if (!gone && !exchange->keep()) co_await Linger();
    co_return !gone && exchange->keep();
  }

  HttpRequest Summary() const {
    HttpRequest seen;
    seen.method = request_.method;
    seen.path = request_.path;
    seen.request_id = request_.request_id;
    return seen;
  }

  asio::awaitable<void> WaitForOutput(SessionExchange* exchange) {
    error_code ec;
    wake_.expires_after(std::chrono::microseconds(
        static_cast<int64_t>(state_->options.keep_alive_interval_s * 1e6)));
    co_await wake_.async_wait(redirect_error(use_awaitable, ec));
    if (!ec) exchange->Silence();
  }

  // Reads while the app works. End of file or an error means that the client has gone. Data belongs
  // to the next request.
  void Watch(const std::shared_ptr<SessionExchange>& exchange) {
    constexpr size_t kPipelined = 64 << 10;
    if (buffer_.size() >= kPipelined) return;
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this(), exchange](error_code ec, size_t count) {
                              self->watching_ = false;
                              self->buffer_.commit(count);
                              if (self->stop_watching_) {
                                self->wake_.cancel();
                              } else if (ec) {
                                exchange->ClientWent();
                              } else {
                                self->Watch(exchange);
                              }
                            });
  }

  asio::awaitable<void> StopWatching() {
    stop_watching_ = true;
    error_code ec;
    socket_.cancel(ec);
    while (watching_) {
      wake_.expires_after(std::chrono::hours(1));
      co_await wake_.async_wait(redirect_error(use_awaitable, ec));
    }
    stop_watching_ = false;
  }

  std::shared_ptr<HttpServerState> state_;
  tcp::socket socket_;
  asio::steady_timer wake_;
  std::shared_ptr<Deadline> deadline_;
  beast::flat_buffer buffer_;
  HttpRequest request_;
  double started_s_ = 0;
  bool watching_ = false;
  bool stop_watching_ = false;
};

}  // namespace

void ServeConnection(std::shared_ptr<HttpServerState> state, tcp::socket socket, bool over_limit) {
  auto executor = socket.get_executor();
  auto session = std::make_shared<HttpSession>(std::move(state), std::move(socket));
  HttpSession* const raw = session.get();
  asio::co_spawn(executor, raw->Run(std::move(session), over_limit), [](std::exception_ptr error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      spdlog::error("http session: {}", e.what());
    }
  });
}

}  // namespace coppice::coordinator
