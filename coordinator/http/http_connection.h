// The bytes of one HTTP connection, plain or over TLS: reads and writes with deadlines, a gentle
// end, and its place among those that may be closed to make room. Used by http_session alone.
// Event-loop thread.
#pragma once

#include <utility>
// <utility> first: Asio 1.74's awaitable uses std::exchange without including it.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <list>
#include <memory>
#include <string>
#include <type_traits>

#include "coordinator/http/deadline.h"
#include "coordinator/http/http_server_state.h"

namespace coppice::coordinator {

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

// Stream: a socket, or TLS over one.
template <typename Stream>
class HttpConnection {
 public:
  static constexpr size_t kPipelined = 64 << 10;  // bytes read ahead while the app works
  static constexpr size_t kHead = 4 << 10;        // bytes read at once where a head is expected
  // Bytes of a body or an answer read or written at once.
  static constexpr size_t kPiece = 64 << 10;

  // tls: what the stream uses; kept as long as the connection.
  HttpConnection(std::shared_ptr<HttpServerState> state,
                 std::shared_ptr<boost::asio::ssl::context> tls, Stream stream)
      : state_(std::move(state)),
        tls_(std::move(tls)),
        stream_(std::move(stream)),
        deadline_(std::make_shared<Deadline>(&socket())),
        buffer_(state_->options.max_header_bytes + 2 * kPipelined) {
    ++state_->connections;
    state_->app->SetConnections(state_->connections);
  }
  ~HttpConnection() {
    StopWaiting();
    deadline_->Detach();
    --state_->connections;
    state_->app->SetConnections(state_->connections);
  }
  HttpConnection(const HttpConnection&) = delete;

  Stream& stream() { return stream_; }
  boost::asio::ip::tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }
  Deadline& deadline() { return *deadline_; }
  // Bytes that have arrived and are not parsed: a head, or a line between the chunks of a body,
  // must fit.
  boost::beast::flat_buffer& buffer() { return buffer_; }
  void Close() {
    boost::system::error_code ignored;
    socket().close(ignored);
  }

  // It may be closed to make room until StopWaiting.
  void Wait() {
    StopWaiting();
    place_ = state_->waiting.insert(state_->waiting.end(), [this] {
      waits_ = false;
      Close();
    });
    waits_ = true;
  }
  void StopWaiting() {
    if (std::exchange(waits_, false)) state_->waiting.erase(place_);
  }

  boost::asio::awaitable<bool> Handshake() {
    boost::system::error_code ec;
    if constexpr (kTls) {
      Wait();
      deadline_->Arm(state_->options.header_timeout_s);
      co_await stream_.async_handshake(TlsStream::server, Into(ec));
      deadline_->Disarm();
      StopWaiting();
    }
    co_return !ec;
  }

  // Adds arriving bytes to the buffer, at most `most`. False at the end of the stream, or when the
  // time is up.
  boost::asio::awaitable<bool> Receive(size_t most) {
    boost::system::error_code ec;
    const size_t count = co_await stream_.async_read_some(buffer_.prepare(most), Into(ec));
    buffer_.commit(count);
    co_return !ec;
  }

  // The deadline is for each piece, so a client that reads slowly can get a large answer.
  boost::asio::awaitable<bool> Write(const std::string& bytes) {
    const Writing writing(state_.get());
    boost::system::error_code ec;
    for (size_t at = 0; !ec && at < bytes.size(); at += kPiece) {
      const auto piece =
          boost::asio::buffer(bytes.data() + at, std::min(kPiece, bytes.size() - at));
      deadline_->Arm(state_->options.write_timeout_s);
      co_await boost::asio::async_write(stream_, piece, Into(ec));
      deadline_->Disarm();
    }
    co_return !ec;
  }

  // Half-closes and reads what the client still sends, because the client may look for the answer
  // only after sending. Ends after a second of silence, after the time for a body, or after more
  // bytes than any client sends by mistake.
  boost::asio::awaitable<void> Linger() {
    Wait();
    boost::system::error_code ec;
    deadline_->Arm(kSilence_s);
    if constexpr (kTls) {
      co_await stream_.async_shutdown(Into(ec));
      ec.clear();
    }
    socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, ec);
    std::string sink(16384, '\0');
    size_t left = kLingerBodies * state_->options.max_body_bytes;
    const double end_s = state_->clock->NowSeconds() + state_->options.body_timeout_s;
    while (!ec && left > 0 && state_->clock->NowSeconds() < end_s) {
      deadline_->Arm(kSilence_s);
      const size_t count = co_await socket().async_read_some(boost::asio::buffer(sink), Into(ec));
      left -= std::min(left, count);
    }
    deadline_->Disarm();
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, boost::asio::ip::tcp::socket>;
  static constexpr double kSilence_s = 1;
  static constexpr size_t kLingerBodies = 16;

  static auto Into(boost::system::error_code& ec) {
    return boost::asio::redirect_error(boost::asio::use_awaitable, ec);
  }

  // Counts a connection as writing.
  struct Writing {
    explicit Writing(HttpServerState* server) : state(server) { ++state->writing; }
    ~Writing() { --state->writing; }
    HttpServerState* const state;
  };

  const std::shared_ptr<HttpServerState> state_;
  const std::shared_ptr<boost::asio::ssl::context> tls_;
  Stream stream_;
  const std::shared_ptr<Deadline> deadline_;
  boost::beast::flat_buffer buffer_;
  bool waits_ = false;
  std::list<std::function<void()>>::iterator place_;  // valid while the connection waits
};

}  // namespace coppice::coordinator
