// One HTTP/1.1 request and its answer over a connection. Used by the client and http_fetch.
// Thread-compatible.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loadgen/connection.h"

namespace coppice::loadgen {

using Headers = std::vector<std::pair<std::string, std::string>>;

// The bytes of a request. body "" = GET, else POST with JSON.
std::string RequestBytes(const BaseUrl& url, const std::string& path, const Headers& headers,
                         const std::string& body);

struct HttpAnswer {
  ErrorCode error;
  int status = 0;         // 0 = no head arrived
  bool reusable = false;  // another request may follow on this connection
};

// Writes the request and reads the answer. Calls on_body for each piece of the body when it has
// arrived, with the status.
boost::asio::awaitable<HttpAnswer> Exchange(
    Connection& connection, const std::string& request,
    const std::function<void(int status, std::string_view piece)>& on_body);

}  // namespace coppice::loadgen
