// From the head of a request as Beast parsed it to an HttpRequest, or the error that it deserves
// (docs/api.md 3.1). Used by http_session, and by the fuzzer. Pure but for new request ids.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>

#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/http/http_server.h"

namespace coppice::coordinator {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

std::string NewRequestId();

// Sets the limits of a head that is about to be read.
void LimitHead(const HttpOptions& limits, HttpParser* parser);
// Fills *request from a whole head. Returns the error of a head that is refused.
std::optional<ApiError> ReadHead(const HttpParser& parser, const HttpOptions& limits,
                                 HttpRequest* request);
// The error of a head that is malformed or too large. nullopt: the client has gone. received: bytes
// that arrived.
std::optional<ApiError> HeadError(const boost::system::error_code& ec, const HttpParser& parser,
                                  size_t received, const HttpOptions& limits);
// The error of a malformed or too large body. nullopt: the client has gone.
std::optional<ApiError> BodyError(const boost::system::error_code& ec, const HttpOptions& limits);

}  // namespace coppice::coordinator
