// A client's connection to a server, plain or TLS, for coroutines of one io_context. Used by
// exchange and http_fetch. Thread-compatible.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "loadgen/base_url.h"
#include "loadgen/record.h"
#include "loadgen/servers.h"

namespace coppice::loadgen {

using ErrorCode = boost::system::error_code;

// How to reach one server: its addresses and, for https, what is trusted.
struct Route {
  BaseUrl url;
  boost::asio::ip::tcp::resolver::results_type addresses;
  std::shared_ptr<boost::asio::ssl::context> tls;  // nullptr = http
};

// Resolves the name; Unavailable names the server.
absl::StatusOr<Route> FindRoute(boost::asio::io_context& io, const BaseUrl& url, bool insecure);

class Connection {
 public:
  // *bytes must outlive the connection.
  Connection(boost::asio::io_context& io, const Route& route, ByteCount* bytes);

  // Connects, and shakes hands with TLS, where the certificate must name the host.
  boost::asio::awaitable<ErrorCode> Open();
  boost::asio::awaitable<ErrorCode> Write(std::string_view bytes);
  // Appends to buffer() what has arrived, at least one byte.
  boost::asio::awaitable<ErrorCode> Read();
  boost::beast::flat_buffer& buffer() { return buffer_; }
  // Ends the current operation with an error. No operation may follow.
  void Close();

 private:
  const Route& route_;
  ByteCount* bytes_;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace coppice::loadgen
