#include "coordinator/http/http_session.h"

#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <spdlog/spdlog.h>
#include <strings.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http_exchange.h"
#include "coordinator/http/http_head.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

asio::ip::address Unmapped(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

// Whether the peer of a connection is on this host: over the loopback interface, or over another
// one with the address of this end.
bool IsThisHost(const tcp::socket& socket) {
  error_code failed;
  const asio::ip::address peer = Unmapped(socket.remote_endpoint(failed).address());
  if (failed) return false;
  return peer.is_loopback() || peer == Unmapped(socket.local_endpoint(failed).address());
}

// Cancels the socket's pending operations when the time is up, until disarmed.
class Deadline : public std::enable_shared_from_this<Deadline> {
 public:
  explicit Deadline(tcp::socket* socket) : socket_(socket), timer_(socket->get_executor()) {}
  void Arm(double seconds) {
    expired_ = false;
    Wait(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)), ++armed_);
  }
  void Disarm() {
    ++armed_;
    timer_.cancel();
  }
  void Detach() {
    socket_ = nullptr;
    timer_.cancel();
  }
  bool expired() const { return expired_; }

 private:
  // A part of the operation may have ended and its handler not have run: then there is nothing to
  // cancel yet, and the next part begins. So this goes on until disarmed. armed: a wait of an earlier
  // time, which may be over but for its handler, cancels nothing.
  void Wait(std::chrono::microseconds time, uint64_t armed) {
    constexpr std::chrono::milliseconds kAgain(10);
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), armed, kAgain](error_code ec) {
      if (ec || self->socket_ == nullptr || self->armed_ != armed) return;
      self->expired_ = true;
      error_code ignored;
      self->socket_->cancel(ignored);
      self->Wait(kAgain, armed);
    });
  }

  tcp::socket* socket_;
  asio::steady_timer timer_;
  uint64_t armed_ = 0;  // how often it was armed or disarmed
  bool expired_ = false;
};

using TlsStream = asio::ssl::stream<tcp::socket>;

// Stream: a socket, or TLS over one.
template <typename Stream>
class HttpSession : public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  // tls: what the stream uses, kept as long as it.
  HttpSession(std::shared_ptr<HttpServerState> state, std::shared_ptr<asio::ssl::context> tls,
              Stream stream)
      : state_(std::move(state)),
        tls_(std::move(tls)),
        stream_(std::move(stream)),
        wake_(stream_.get_executor()),
        deadline_(std::make_shared<Deadline>(&socket())),
        buffer_(state_->options.max_header_bytes + 2 * kPipelined) {
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
    error_code ignored;
    const asio::ip::address peer = Unmapped(socket().remote_endpoint(ignored).address());
    if (!ignored) address_ = peer.to_string();
    from_this_host_ = IsThisHost(socket());
    if (!co_await Handshake()) {
      // Not a client of this protocol.
    } else if (over_limit) {
      const ApiError error{503, "too_many_connections", "the server has too many open connections",
                           "", 1};
      co_await Refuse(error);
    } else {
      while (co_await OneRequest()) {
      }
    }
    socket().close(ignored);
    (void)self;
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;
  static constexpr size_t kPipelined = 64 << 10;  // bytes read ahead while the app works
  static constexpr size_t kPiece = 64 << 10;      // of an answer
  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  asio::awaitable<bool> Handshake() {
    error_code ec;
    if constexpr (kTls) {
      deadline_->Arm(state_->options.header_timeout_s);
      co_await stream_.async_handshake(TlsStream::server, redirect_error(use_awaitable, ec));
      deadline_->Disarm();
    }
    co_return !ec;
  }

  // True when the connection stays open for another request.
  asio::awaitable<bool> OneRequest() {
    request_ = HttpRequest();
    request_.request_id = NewRequestId();
    request_.address = address_;
    request_.from_this_host = from_this_host_;
    if (buffer_.size() == 0 && !co_await WaitForFirstByte()) co_return false;
    started_s_ = state_->clock->NowSeconds();
    HttpParser parser;
    if (!co_await TakeHead(&parser)) co_return false;
    std::optional<HttpReply> refusal = state_->app->CheckHead(&request_);
    const bool expects =
        strcasecmp(std::string(parser.get()[http::field::expect]).c_str(), "100-continue") == 0;
    if (refusal && expects) {
      co_await Finish(*refusal, /*keep=*/false);
      co_return false;
    }
    if (!co_await TakeBody(&parser, expects)) co_return false;
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
        co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    if (ec) co_return false;
    buffer_.commit(count);
    co_return true;
  }

  asio::awaitable<bool> TakeHead(HttpParser* parser) {
    LimitHead(state_->options, parser);
    error_code ec;
    deadline_->Arm(state_->options.header_timeout_s);
    co_await http::async_read_header(stream_, buffer_, *parser, redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    std::optional<ApiError> error;
    if (deadline_->expired()) {
      error = ApiError{408, "client_too_slow", "the request head did not arrive in time"};
    } else if (ec) {
      error = HeadError(ec, *parser, buffer_.size(), state_->options);
    } else {
      error = ReadHead(*parser, state_->options, &request_);
    }
    if (error) co_await Refuse(*error);
    co_return !ec && !error;
  }

  asio::awaitable<bool> TakeBody(HttpParser* parser, bool expects) {
    if (parser->is_done()) co_return true;
    parser->body_limit(state_->options.max_body_bytes);
    error_code ec;
    deadline_->Arm(state_->options.body_timeout_s);
    if (expects) {
      const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(go), redirect_error(use_awaitable, ec));
    }
    if (!ec)
      co_await http::async_read(stream_, buffer_, *parser, redirect_error(use_awaitable, ec));
    deadline_->Disarm();
    if (!ec) co_return true;
    std::optional<ApiError> error = BodyError(ec, state_->options);
    if (deadline_->expired())
      error = ApiError{408, "client_too_slow", "the request body did not arrive in time"};
    if (error) co_await Refuse(*error);
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
    std::string bytes = FormatReply(reply, request_.request_id, keep);
    // The client would take it for the beginning of the next answer.
    if (request_.method == "HEAD") bytes.resize(bytes.size() - reply.body.size());
    const bool written = co_await Write(bytes);
    state_->app->Observe(request_, reply.status,
                         started_s_ > 0 ? state_->clock->NowSeconds() - started_s_ : 0);
    if (!keep) co_await Linger();
    co_return keep&& written;
  }

  // The deadline is for each piece: a client that reads slowly gets a large answer too.
  asio::awaitable<bool> Write(const std::string& bytes) {
    error_code ec;
    ++state_->writing;
    for (size_t at = 0; !ec && at < bytes.size(); at += kPiece) {
      const auto piece = asio::buffer(bytes.data() + at, std::min(kPiece, bytes.size() - at));
      deadline_->Arm(state_->options.write_timeout_s);
      co_await asio::async_write(stream_, piece, redirect_error(use_awaitable, ec));
      deadline_->Disarm();
    }
    --state_->writing;
    co_return !ec;
  }

  // Half-closes and reads what the client still sends, for a second at most.
  asio::awaitable<void> Linger() {
    error_code ec;
    deadline_->Arm(1.0);
    if constexpr (kTls) {
      co_await stream_.async_shutdown(redirect_error(use_awaitable, ec));
      ec.clear();
    }
    socket().shutdown(tcp::socket::shutdown_send, ec);
    std::string sink(16384, '\0');
    while (!ec && !deadline_->expired()) {
      co_await socket().async_read_some(asio::buffer(sink), redirect_error(use_awaitable, ec));
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
    if (buffer_.size() >= kPipelined) return;
    watching_ = true;
    stream_.async_read_some(buffer_.prepare(4096), [self = this->shared_from_this(), exchange](
                                                       error_code ec, size_t count) {
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
    socket().cancel(ec);
    while (watching_) {
      wake_.expires_after(std::chrono::hours(1));
      co_await wake_.async_wait(redirect_error(use_awaitable, ec));
    }
    stop_watching_ = false;
  }

  std::shared_ptr<HttpServerState> state_;
  const std::shared_ptr<asio::ssl::context> tls_;
  Stream stream_;
  asio::steady_timer wake_;
  std::shared_ptr<Deadline> deadline_;
  // What has arrived and is not parsed: a head, or a line between the chunks of a body, must fit.
  beast::flat_buffer buffer_;
  HttpRequest request_;
  std::string address_;  // of the client
  bool from_this_host_ = false;
  double started_s_ = 0;
  bool watching_ = false;
  bool stop_watching_ = false;
};

template <typename Stream>
void Serve(std::shared_ptr<HttpServerState> state, std::shared_ptr<asio::ssl::context> tls,
           Stream stream, bool over_limit) {
  auto executor = stream.get_executor();
  auto session =
      std::make_shared<HttpSession<Stream>>(std::move(state), std::move(tls), std::move(stream));
  HttpSession<Stream>* const raw = session.get();
  asio::co_spawn(executor, raw->Run(std::move(session), over_limit), [](std::exception_ptr error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      spdlog::error("http session: {}", e.what());
    }
  });
}

}  // namespace

void ServeConnection(std::shared_ptr<HttpServerState> state, tcp::socket socket, bool over_limit) {
  std::shared_ptr<asio::ssl::context> tls = state->tls;
  if (tls == nullptr) return Serve(std::move(state), nullptr, std::move(socket), over_limit);
  TlsStream stream(std::move(socket), *tls);
  Serve(std::move(state), std::move(tls), std::move(stream), over_limit);
}

}  // namespace coppice::coordinator
