#include "coordinator/http/http_session.h"

#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <spdlog/spdlog.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/http_connection.h"
#include "coordinator/http/http_exchange.h"
#include "coordinator/http/http_head.h"
#include "coordinator/http/output_batch.h"
#include "coordinator/http/peer_address.h"
#include "coordinator/http/request_parser.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;
using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

void LogThrown(const std::exception_ptr& thrown, const std::string& request_id) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    spdlog::error("http session, request {}: {}; the connection is closed", request_id, e.what());
  } catch (...) {
    spdlog::error("http session, request {}: unknown exception; the connection is closed",
                  request_id);
  }
}

// Stream: a socket, or TLS over one.
template <typename Stream>
class HttpSession : public OutputBatch::Member,
                    public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  HttpSession(std::shared_ptr<HttpServerState> state, std::shared_ptr<asio::ssl::context> tls,
              Stream stream)
      : state_(std::move(state)),
        connection_(state_, std::move(tls), std::move(stream)),
        wake_(connection_.socket().get_executor()) {}

  // self keeps the session alive while the coroutine runs.
  asio::awaitable<void> Run(std::shared_ptr<HttpSession> self, bool over_limit) {
    try {
      co_await Serve(over_limit);
    } catch (...) {
      Fail(std::current_exception());
    }
    connection_.Close();
    (void)self;
  }

  // Handles an exception of any handler of the session: closes the connection and tells the app's
  // current request that its client has gone.
  void Fail(std::exception_ptr thrown) {
    try {
      connection_.Close();
      LogThrown(thrown, request_id_);
      if (exchange_ != nullptr) exchange_->ClientWent();
    } catch (...) {
      LogThrown(std::current_exception(), request_id_);
    }
  }

 private:
  using Connection = HttpConnection<Stream>;
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;
  static constexpr double kLongest_s = 3600;  // a wait without an end

  asio::awaitable<void> Serve(bool over_limit) {
    address_ = PeerAddress(connection_.socket());
    from_this_host_ = IsThisHost(connection_.socket());
    error_code ignored;
    connection_.socket().non_blocking(true, ignored);  // for WriteNow
    if (!co_await connection_.Handshake()) co_return;  // not a client of this protocol
    if (over_limit) {
      const ApiError error{503, "too_many_connections", "the server has too many open connections",
                           "", 1};
      co_await Refuse(error);
    } else {
      while (co_await OneRequest()) {
      }
    }
  }

  // True when the connection stays open for another request.
  asio::awaitable<bool> OneRequest() {
    request_ = HttpRequest();
    request_.request_id = request_id_ = NewRequestId();
    request_.address = address_;
    request_.from_this_host = from_this_host_;
    connection_.Wait();
    RequestParser parser(&state_->options, &request_);
    if (!co_await AwaitRequest(&parser)) co_return false;
    started_s_ = state_->clock->NowSeconds();
    const bool taken = co_await TakeHead(&parser);
    connection_.StopWaiting();
    request_id_ = request_.request_id;
    if (!taken) co_return false;
    const std::optional<HttpReply> refusal = state_->app->CheckHead(&request_);
    if (refusal) co_return co_await RefuseHead(*refusal, &parser);
    if (!parser.done() && !co_await TakeBody(&parser)) co_return false;
    co_return co_await Answer(parser.keep_alive(), parser.is_http_11());
  }

  void Parse(RequestParser* parser) {
    const auto bytes = connection_.buffer().data();
    connection_.buffer().consume(
        parser->Put(absl::string_view(static_cast<const char*>(bytes.data()), bytes.size())));
  }

  // Returns whether a request has begun. Empty lines before it do not count.
  asio::awaitable<bool> AwaitRequest(RequestParser* parser) {
    Parse(parser);
    while (parser->before_request_line() && connection_.buffer().size() == 0) {
      connection_.buffer().shrink_to_fit();
      connection_.deadline().Arm(state_->options.idle_timeout_s);
      const bool came = co_await connection_.Receive(Connection::kHead);
      connection_.deadline().Disarm();
      if (!came) co_return false;
      connection_.Wait();
      Parse(parser);
    }
    co_return true;
  }

  // Returns whether the whole head has arrived. If not, the client has been told why.
  asio::awaitable<bool> TakeHead(RequestParser* parser) {
    connection_.deadline().Arm(state_->options.header_timeout_s);
    Parse(parser);
    for (bool there = true; there && !parser->head_done() && !parser->error();) {
      there = co_await connection_.Receive(Connection::kHead);
      Parse(parser);
    }
    connection_.deadline().Disarm();
    if (parser->head_done()) co_return true;
    co_await RefuseIfThere(*parser, "the request head did not arrive in time");
    co_return false;
  }

  // Returns whether the whole body has arrived. If not, the client has been told why. The body is
  // counted as held in memory.
  asio::awaitable<bool> TakeBody(RequestParser* parser) {
    bool crowded = false;  // other bodies need the memory
    const auto share = std::make_shared<BodyMemory::Share>(state_->bodies, [&] {
      crowded = true;
      parser->DropBody();
      std::string().swap(request_.body);
      connection_.deadline().Arm(0);
    });
    error_code ec;
    connection_.deadline().Arm(state_->options.body_timeout_s);
    if (parser->expects_continue()) {
      const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(connection_.stream(), asio::buffer(go),
                                 redirect_error(use_awaitable, ec));
    }
    Parse(parser);
    bool there = !ec;
    while (there && !crowded && !parser->done() && !parser->error()) {
      if (!share->Grow(request_.body.size())) {
        crowded = true;
      } else {
        there = co_await connection_.Receive(Connection::kPiece);
        Parse(parser);
      }
    }
    connection_.deadline().Disarm();
    if (!crowded && parser->done() && share->Grow(request_.body.size())) {
      share->Arrived();
      request_.body_share = share;
      co_return true;
    }
    if (crowded || parser->done()) {
      const ApiError error{503, "too_many_bodies", "the server holds too many request bodies", "",
                           1};
      co_await Refuse(error);
    } else {
      co_await RefuseIfThere(*parser, "the request body did not arrive in time");
    }
    co_return false;
  }

  // Answers before the body has arrived. A small body is read and discarded, so that the connection
  // can be kept.
  asio::awaitable<bool> RefuseHead(const HttpReply& reply, RequestParser* parser) {
    const std::optional<uint64_t> left = parser->body_left();
    const bool passable =
        left == 0u || (left && *left <= Connection::kPiece && !parser->expects_continue());
    parser->DropBody();
    if (!co_await Finish(reply, parser->keep_alive() && passable)) co_return false;
    connection_.Wait();
    connection_.deadline().Arm(state_->options.body_timeout_s);
    Parse(parser);
    for (bool there = true; there && !parser->done();) {
      there = co_await connection_.Receive(Connection::kPiece);
      Parse(parser);
    }
    connection_.deadline().Disarm();
    co_return parser->done();
  }

  // Refuses a faulty or late request. Otherwise the client has gone.
  asio::awaitable<void> RefuseIfThere(const RequestParser& parser, const char* late) {
    if (parser.error()) {
      co_await Refuse(*parser.error());
    } else if (connection_.deadline().expired()) {
      const ApiError error{408, "client_too_slow", late};
      co_await Refuse(error);
    }
  }

  // Refuses a request at the transport level. Answers, then closes gently: a reset could destroy
  // the answer.
  asio::awaitable<void> Refuse(const ApiError& error) {
    // Not a temporary: GCC 12 copies temporaries in a co_await expression byte by byte.
    const HttpReply reply = ErrorReply(error, state_->app->FormOfErrors(request_.path));
    co_await Finish(reply, /*keep=*/false);
  }

  asio::awaitable<bool> Finish(const HttpReply& reply, bool keep) {
    HttpReply sent = reply;
    for (auto& header : state_->cors.HeadersFor(request_)) sent.headers.push_back(header);
    std::string bytes = FormatHead(sent, request_.request_id, keep, absl::Now());
    // No body for HEAD: the client would take it for the beginning of the next answer.
    if (request_.method != "HEAD") bytes += sent.body;
    const bool written = co_await connection_.Write(bytes);
    state_->app->Observe(request_, reply.status,
                         started_s_ > 0 ? state_->clock->NowSeconds() - started_s_ : 0);
    if (!keep) co_await connection_.Linger();
    co_return keep&& written;
  }

  // Gives the request to the app and writes its output. Watches for a disconnect.
  asio::awaitable<bool> Answer(bool keep, bool chunked) {
    SessionExchange::Options options;
    options.request_id = request_.request_id;
    options.keep = keep;
    options.chunked = chunked;
    options.head_only = request_.method == "HEAD";
    options.gzip = PrefersGzip(request_.accept_encoding);
    options.max_unread_bytes = state_->options.max_unread_bytes;
    options.client = {request_.caller.empty() ? address_ : request_.caller, request_.weight};
    options.jobs = state_->jobs;
    exchange_ = std::make_shared<SessionExchange>(
        std::move(options), state_->cors.HeadersFor(request_), [session = this->weak_from_this()] {
          const auto self = session.lock();
          if (self != nullptr) self->TakeOutput(self);
        });
    silent_since_ = SteadyNow();
    const HttpRequest seen = Summary();
    Watch();
    state_->app->Handle(std::move(request_), exchange_);
    bool written = true;
    while (written && !exchange_->gone()) {
      if (exchange_->HasOutput()) {
        const std::string bytes = exchange_->TakeOutput();
        written = co_await connection_.Write(bytes);
        silent_since_ = SteadyNow();
      } else if (exchange_->ended()) {
        break;
      } else {
        co_await WaitForOutput();
      }
    }
    if (!written) exchange_->ClientWent();
    co_await StopWatching();
    const bool gone = !written || exchange_->gone();
    keep = !gone && exchange_->keep();
    state_->app->Observe(seen, gone ? 0 : exchange_->status(),
                         state_->clock->NowSeconds() - started_s_);
    exchange_ = nullptr;
    if (!gone && !keep) co_await connection_.Linger();
    co_return keep;
  }

  HttpRequest Summary() const {
    HttpRequest seen;
    seen.method = request_.method;
    seen.path = request_.path;
    seen.request_id = request_.request_id;
    return seen;
  }

  // The exchange has something new.
  void TakeOutput(const std::shared_ptr<HttpSession>& self) {
    if (exchange_ != nullptr && exchange_->unread() && !exchange_->gone()) {
      spdlog::warn("request {}: its client has not read {} bytes of the stream and is disconnected",
                   request_id_, state_->options.max_unread_bytes);
      connection_.Close();
    } else if (!kTls && waiting_ && exchange_ != nullptr && !exchange_->ended() &&
               !exchange_->gone()) {
      if (!in_batch_) state_->outputs->Add(connection_.socket().get_executor(), self);
      in_batch_ = true;
      return;
    }
    Wake();
  }

  // The coroutine goes on.
  void Wake() {
    error_code ignored;
    wake_.cancel(ignored);
  }

  // Leaves to the coroutine what the socket does not take at once, and its errors.
  void WriteNow(SteadyTime now) override {
    in_batch_ = false;
    if constexpr (!kTls) {
      if (!waiting_ || exchange_ == nullptr || exchange_->gone()) return;
      error_code ec;
      while (!ec && exchange_->HasOutput())
        exchange_->Written(
            connection_.stream().write_some(asio::buffer(exchange_->NextOutput()), ec));
      silent_since_ = now;
      if (ec) Wake();
    }
  }

  asio::awaitable<void> WaitForOutput() {
    const double comment_s = state_->options.keep_alive_interval_s;
    const double head_s = exchange_->stream_open() ? 0 : state_->options.stream_head_after_s;
    const bool comment = comment_s > 0 && (head_s == 0 || comment_s <= head_s);
    const double wait_s = comment ? comment_s : head_s > 0 ? head_s : kLongest_s;
    const SteadyTime since = silent_since_;
    error_code ec;
    wake_.expires_at(since + std::chrono::microseconds(static_cast<int64_t>(wait_s * 1e6)));
    waiting_ = true;
    co_await wake_.async_wait(redirect_error(use_awaitable, ec));
    waiting_ = false;
    if (ec || silent_since_ != since) co_return;  // there is output, or was some
    exchange_->Silence(comment);
    silent_since_ = SteadyNow();
  }

  // Reads while the app works. End of file or an error means that the client has gone. Data belongs
  // to the next request.
  void Watch() {
    if (connection_.buffer().size() >= Connection::kPipelined) return;
    watching_ = true;
    connection_.stream().async_read_some(
        connection_.buffer().prepare(Connection::kHead),
        [self = this->shared_from_this()](error_code ec, size_t count) {
          try {
            self->Watched(ec, count);
          } catch (...) {
            self->Fail(std::current_exception());
          }
        });
  }

  void Watched(const error_code& ec, size_t count) {
    watching_ = false;
    connection_.buffer().commit(count);
    if (stop_watching_) {
      Wake();
    } else if (ec) {
      exchange_->ClientWent();
    } else {
      Watch();
    }
  }

  asio::awaitable<void> StopWatching() {
    stop_watching_ = true;
    error_code ec;
    connection_.socket().cancel(ec);
    while (watching_) {
      wake_.expires_after(std::chrono::hours(1));
      co_await wake_.async_wait(redirect_error(use_awaitable, ec));
    }
    stop_watching_ = false;
  }

  std::shared_ptr<HttpServerState> state_;
  Connection connection_;
  asio::steady_timer wake_;
  HttpRequest request_;
  std::string request_id_;                     // id of the current or the last request
  std::shared_ptr<SessionExchange> exchange_;  // set while the app answers
  std::string address_;                        // address of the client
  bool from_this_host_ = false;
  double started_s_ = 0;
  bool watching_ = false;
  bool stop_watching_ = false;
  bool waiting_ = false;     // the coroutine, for output
  bool in_batch_ = false;    // WriteNow will be called
  SteadyTime silent_since_;  // when the last output was written
};

template <typename Stream>
void Serve(std::shared_ptr<HttpServerState> state, std::shared_ptr<asio::ssl::context> tls,
           Stream stream, bool over_limit) {
  auto executor = stream.get_executor();
  auto session =
      std::make_shared<HttpSession<Stream>>(std::move(state), std::move(tls), std::move(stream));
  HttpSession<Stream>* const raw = session.get();
  asio::co_spawn(executor, raw->Run(std::move(session), over_limit), asio::detached);
}

}  // namespace

void ServeConnection(std::shared_ptr<HttpServerState> state, tcp::socket socket, bool over_limit) {
  std::shared_ptr<asio::ssl::context> tls = state->tls;
  if (tls == nullptr) return Serve(std::move(state), nullptr, std::move(socket), over_limit);
  TlsStream stream(std::move(socket), *tls);
  Serve(std::move(state), std::move(tls), std::move(stream), over_limit);
}

}  // namespace coppice::coordinator
