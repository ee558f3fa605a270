// Status line and headers of answers, as bytes (RFC 9110, RFC 9112). Used by http_exchange,
// http_session and routes. Any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

// The media type of a header Content-Type, without parameters.
absl::string_view MediaType(absl::string_view content_type);

// What the header Date says of this time.
std::string HttpDate(absl::Time time);

// What precedes the body of a whole answer, at this time.
std::string FormatHead(const HttpReply& reply, const std::string& request_id, bool keep_connection,
                       absl::Time now);

// What precedes the events of a stream. chunked: they come in chunks; otherwise until the
// connection ends.
std::string FormatStreamHead(const HttpHeaders& headers, const std::string& request_id,
                             bool chunked, bool keep_connection, absl::Time now);

}  // namespace coppice::coordinator
