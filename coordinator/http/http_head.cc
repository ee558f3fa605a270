#include "coordinator/http/http_head.h"

#include <boost/asio/error.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

bool GoodRequestId(const std::string& id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' ||
          c == '-'))
      return false;
  }
  return true;
}

ApiError UriTooLong(const HttpOptions& limits) {
  return {414, "uri_too_long", absl::StrCat("the URI exceeds ", limits.max_uri_bytes, " bytes")};
}

ApiError BodyTooLarge(const HttpOptions& limits) {
  return {413, "body_too_large",
          absl::StrCat("the body exceeds ", limits.max_body_bytes, " bytes")};
}

std::optional<ApiError> CheckLimits(const HttpParser& parser, const HttpOptions& limits,
                                    const HttpRequest& request) {
  const auto& head = parser.get();
  if (request.target.size() > limits.max_uri_bytes) return UriTooLong(limits);
  if (head.count(http::field::content_length) > 0 &&
      head.count(http::field::transfer_encoding) > 0) {
    return ApiError{400, "invalid_header", "Content-Length together with Transfer-Encoding"};
  }
  if (head.count(http::field::transfer_encoding) > 0 && !parser.chunked()) {
    return ApiError{400, "invalid_header", "Transfer-Encoding: only chunked is supported"};
  }
  if (const auto length = parser.content_length(); length && *length > limits.max_body_bytes)
    return BodyTooLarge(limits);
  return std::nullopt;
}

}  // namespace

std::string NewRequestId() {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat("req-", absl::Hex(engine(), absl::kZeroPad16));
}

void LimitHead(const HttpOptions& limits, HttpParser* parser) {
  parser->header_limit(static_cast<uint32_t>(limits.max_header_bytes));
  parser->body_limit(std::numeric_limits<uint64_t>::max());  // ReadHead checks Content-Length
}

std::optional<ApiError> ReadHead(const HttpParser& parser, const HttpOptions& limits,
                                 HttpRequest* request) {
  const auto& head = parser.get();
  request->method = std::string(head.method_string());
  request->target = std::string(head.target());
  request->path = request->target.substr(0, request->target.find('?'));
  request->content_type = std::string(head[http::field::content_type]);
  const auto accepts = head.equal_range(http::field::accept);
  for (auto it = accepts.first; it != accepts.second; ++it)
    absl::StrAppend(&request->accept, request->accept.empty() ? "" : ",",
                    absl::string_view(it->value().data(), it->value().size()));
  request->authorization = std::string(head[http::field::authorization]);
  request->has_origin = head.count(http::field::origin) > 0;
  request->timeout_header = std::string(head["X-Request-Timeout"]);
  std::optional<ApiError> error = CheckLimits(parser, limits, *request);
  const auto id = head.find("X-Request-Id");
  if (id == head.end()) return error;
  if (GoodRequestId(std::string(id->value()))) {
    request->request_id = std::string(id->value());
  } else if (!error) {
    error = ApiError{400, "invalid_header", "X-Request-Id must be 1 to 128 of A-Z a-z 0-9 . _ : -"};
  }
  return error;
}

std::optional<ApiError> HeadError(const error_code& ec, const HttpParser& parser, size_t received,
                                  const HttpOptions& limits) {
  if (ec.category() != http::make_error_code(http::error::bad_method).category() ||
      ec == http::error::end_of_stream || ec == http::error::partial_message) {
    return std::nullopt;
  }
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    const bool in_request_line = parser.get().target().empty();
    if (in_request_line && received > limits.max_uri_bytes) return UriTooLong(limits);
    return ApiError{431, "headers_too_large",
                    absl::StrCat("the request head exceeds ", limits.max_header_bytes, " bytes")};
  }
  return ApiError{400, "invalid_header", absl::StrCat("malformed HTTP request: ", ec.message())};
}

std::optional<ApiError> BodyError(const error_code& ec, const HttpOptions& limits) {
  if (ec == http::error::body_limit) return BodyTooLarge(limits);
  if (ec.category() != http::make_error_code(http::error::bad_chunk).category() ||
      ec == http::error::partial_message || ec == http::error::end_of_stream) {
    return std::nullopt;
  }
  return ApiError{400, "invalid_header", absl::StrCat("malformed HTTP body: ", ec.message())};
}

}  // namespace coppice::coordinator
