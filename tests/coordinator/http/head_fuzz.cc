// Any bytes from a client: the request is read or refused, its path finds an endpoint or none, its
// body has a coding or none. That does not depend on how the bytes are cut. fuzz.sh runs it with libFuzzer; a normal test runs the
// seeds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "coordinator/api/endpoints.h"
#include "coordinator/http/cors.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/request_parser.h"

namespace coppice::coordinator {
namespace {

struct Read {
  HttpRequest request;
  bool head_done = false, done = false;
  int error = 0;  // status
  size_t used = 0;
};

// Parses as the session does, when `piece` bytes arrive at a time.
Read ReadIn(absl::string_view bytes, size_t piece) {
  HttpOptions limits;
  limits.max_header_bytes = 300;
  limits.max_uri_bytes = 100;
  limits.max_body_bytes = 200;
  Read read;
  RequestParser parser(&limits, &read.request);
  for (size_t end = 0; end < bytes.size() && !parser.done() && !parser.error();) {
    end = std::min(bytes.size(), end + piece);
    // The session parses the head, looks at it, and goes on with what it has.
    for (int i = 0; i < 2 && !parser.done() && !parser.error(); ++i)
      read.used += parser.Put(bytes.substr(read.used, end - read.used));
    if (read.used > end) std::abort();
    if (end - read.used > limits.max_header_bytes && !parser.done() && !parser.error())
      std::abort();  // more would be held
  }
  if (read.request.body.size() > limits.max_body_bytes) std::abort();
  if (const auto& error = parser.error()) {
    const bool known = (error->status >= 400 && error->status <= 431) || error->status == 505;
    if (!known || error->message.empty()) std::abort();
    read.error = error->status;
  }
  read.head_done = parser.head_done();
  read.done = parser.done();
  return read;
}

// What is done with a head that has been read.
void Use(const HttpRequest& request) {
  const Endpoint* endpoint = FindEndpoint(request.path);
  if (endpoint != nullptr && std::string(endpoint->path).find('{') != std::string::npos)
    PathArgument(*endpoint, request.path);
  PrefersGzip(request.accept_encoding);
  // An answer has no line but its own.
  const CorsPolicy cors({"https://a.example"});
  for (const auto& [name, value] : cors.HeadersFor(request)) {
    if (value.find_first_of("\r\n") != std::string::npos) std::abort();
  }
  if (request.method != "CONNECT" && request.path != "*" && request.path[0] != '/') std::abort();
}

// The body may say anything of its size.
void Decode(const HttpRequest& request) {
  constexpr size_t kMost = 1000;
  if (!IsGzipCoding(request.content_encoding).value_or(false)) return;
  const absl::StatusOr<std::string> body = Gunzip(request.body, kMost);
  if (body.ok() && (body->size() > kMost || body->size() != GunzippedSize(request.body)))
    std::abort();
}

}  // namespace
}  // namespace coppice::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coppice::coordinator;  // NOLINT
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Read whole = ReadIn(bytes, size);
  if (whole.head_done) Use(whole.request);
  if (whole.done) Decode(whole.request);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}}) {
    const Read cut = ReadIn(bytes, piece);
    if (cut.done != whole.done) std::abort();
    if (whole.done && (cut.used != whole.used || cut.request.body != whole.request.body ||
                       cut.request.path != whole.request.path ||
                       cut.request.content_type != whole.request.content_type))
      std::abort();
  }
  return 0;
}
