// Any bytes from a client: the head is read or refused, its path finds an endpoint or none. fuzz.sh
// runs it with libFuzzer; a normal test runs the seeds.
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "coordinator/api/endpoints.h"
#include "coordinator/http/http_head.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coppice::coordinator;  // NOLINT
  const HttpOptions limits;
  HttpParser parser;
  LimitHead(limits, &parser);
  boost::system::error_code ec;
  size_t used = 0;
  while (!ec && !parser.is_header_done()) {
    const size_t taken = parser.put(boost::asio::buffer(data + used, size - used), ec);
    used += taken;
    if (taken == 0) break;
  }
  HttpRequest request;
  std::optional<ApiError> error;
  if (ec) {
    error = HeadError(ec, parser, size, limits);
  } else if (parser.is_header_done()) {
    error = ReadHead(parser, limits, &request);
    const Endpoint* endpoint = FindEndpoint(request.path);
    if (endpoint != nullptr && std::string(endpoint->path).find('{') != std::string::npos)
      PathArgument(*endpoint, request.path);
    parser.body_limit(limits.max_body_bytes);
    // As the session: the body of a head that is refused is not read.
    while (!ec && !error && !parser.is_done() && used < size) {
      const size_t taken = parser.put(boost::asio::buffer(data + used, size - used), ec);
      used += taken;
      if (taken == 0) break;
    }
    if (ec && !error) error = BodyError(ec, limits);
  }
  if (error && (error->status < 400 || error->status > 431 || error->message.empty())) std::abort();
  return 0;
}
