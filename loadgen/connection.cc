#include "loadgen/connection.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "absl/strings/str_cat.h"

namespace coppice::loadgen {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr size_t kReadBytes = 4 << 10;

}  // namespace

absl::StatusOr<Route> FindRoute(asio::io_context& io, const BaseUrl& url, bool insecure) {
  ErrorCode error;
  Route route;
  route.url = url;
  route.addresses = tcp::resolver(io).resolve(url.host, url.port, error);
  if (error) return absl::UnavailableError(absl::StrCat(url.HostHeader(), ": ", error.message()));
  if (!url.tls) return route;
  route.tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  if (insecure) {
    route.tls->set_verify_mode(asio::ssl::verify_none);
  } else {
    route.tls->set_default_verify_paths();  // or those of SSL_CERT_FILE and SSL_CERT_DIR
    route.tls->set_verify_mode(asio::ssl::verify_peer);
    route.tls->set_verify_callback(asio::ssl::host_name_verification(url.host));
  }
  return route;
}

Connection::Connection(asio::io_context& io, const Route& route, ByteCount* bytes)
    : route_(route), bytes_(bytes), socket_(io) {
  if (route.tls != nullptr) tls_.emplace(socket_, *route.tls);
}

asio::awaitable<ErrorCode> Connection::Open() {
  ErrorCode error;
  co_await asio::async_connect(socket_, route_.addresses,
                               asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return error;
  ErrorCode ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  if (!tls_) co_return error;
  asio::ip::make_address(route_.url.host, ignored);
  if (ignored)  // a name and not an address
    SSL_set_tlsext_host_name(tls_->native_handle(), route_.url.host.c_str());
  co_await tls_->async_handshake(asio::ssl::stream_base::client,
                                 asio::redirect_error(asio::use_awaitable, error));
  co_return error;
}

asio::awaitable<ErrorCode> Connection::Write(std::string_view bytes) {
  ErrorCode error;
  const asio::const_buffer whole(bytes.data(), bytes.size());
  if (tls_) {
    bytes_->sent +=
        co_await asio::async_write(*tls_, whole, asio::redirect_error(asio::use_awaitable, error));
  } else {
    bytes_->sent += co_await asio::async_write(socket_, whole,
                                               asio::redirect_error(asio::use_awaitable, error));
  }
  co_return error;
}

asio::awaitable<ErrorCode> Connection::Read() {
  ErrorCode error;
  const auto room = buffer_.prepare(kReadBytes);
  size_t count = 0;
  if (tls_) {
    count = co_await tls_->async_read_some(room, asio::redirect_error(asio::use_awaitable, error));
  } else {
    count =
        co_await socket_.async_read_some(room, asio::redirect_error(asio::use_awaitable, error));
  }
  buffer_.commit(count);
  bytes_->received += static_cast<int64_t>(count);
  co_return error;
}

void Connection::Close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace coppice::loadgen
