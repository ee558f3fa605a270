#include "coordinator/http/request_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/http/request_target.h"

namespace coppice::coordinator {
namespace {

namespace http = boost::beast::http;

bool GoodRequestId(const std::string& id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' ||
          c == '-'))
      return false;
  }
  return true;
}

// A chunked body that continues has at least this many bytes left: `0`, the end of its line and the
// end of the trailer. Beast 1.74 asserts that it gets them together.
constexpr size_t kLeastOfChunks = 5;

// A line that begins with white space goes on with the one before (obs-fold, RFC 9112 5.2).
bool HasFold(absl::string_view lines) {
  return absl::StrContains(lines, "\n ") || absl::StrContains(lines, "\n\t");
}

std::string Text(boost::beast::string_view view) { return {view.data(), view.size()}; }

// The bytes of the empty lines with which the text begins.
size_t EmptyLines(absl::string_view text) {
  size_t size = 0;
  while (absl::StartsWith(text.substr(size), "\r\n")) size += 2;
  return size;
}

// Several lines of a header that is a list are one list.
void AddToList(absl::string_view value, std::string* list) {
  absl::StrAppend(list, list->empty() ? "" : ", ", value);
}

}  // namespace

std::string NewRequestId() {
  static std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat("req-", absl::Hex(engine(), absl::kZeroPad16));
}

RequestParser::RequestParser(const HttpOptions* limits, HttpRequest* request)
    : limits_(*limits), request_(*request) {
  header_limit(std::numeric_limits<uint32_t>::max());  // unlimited here, since Put counts
  body_limit(std::numeric_limits<uint64_t>::max());
}

size_t RequestParser::Put(absl::string_view bytes) {
  size_t used = 0;
  // Each turn takes lines of the head, bytes of the body, or the line before a chunk. The line of
  // the last chunk comes with the trailer.
  while (!is_done() && !error_ && used < bytes.size()) {
    const bool in_head = !is_header_done();
    if (in_request_line_) {
      const size_t empty = EmptyLines(bytes.substr(used));
      used += empty;
      head_bytes_ += empty;
      CheckLines(/*of_head=*/true, /*taken=*/"", /*waiting=*/0);
    }
    const absl::string_view rest = bytes.substr(used);
    if (error_ || (in_request_line_ && (rest.empty() || rest == "\r"))) break;
    if (!in_head && chunked() && rest.size() < kLeastOfChunks) break;
    body_bytes_ = 0;
    error_code ec;
    size_t taken = put(boost::asio::buffer(rest.data(), rest.size()), ec);
    if (ec == http::error::bad_version) taken = PutVersion(rest, ec);
    used += taken;
    if (in_head) head_bytes_ += taken;
    const bool more = ec == http::error::need_more;
    if (!ec || more) {
      if (body_bytes_ == 0)
        CheckLines(in_head, rest.substr(0, taken), more ? rest.size() - taken : 0);
      if (more || (in_head && is_header_done())) break;
    } else if (ec == http::error::body_limit) {
      FailBody();
    } else {
      FailMalformed(in_head, ec.message());
    }
  }
  return used;
}

std::optional<uint64_t> RequestParser::body_left() const {
  if (is_done()) return 0;
  const boost::optional<uint64_t> left = content_length_remaining();
  return left ? std::optional<uint64_t>(*left) : std::nullopt;
}

// The first error counts.
void RequestParser::Fail(int status, const char* code, const std::string& message) {
  if (!error_) error_ = ApiError{status, code, message};
}

void RequestParser::FailMalformed(bool in_head, const std::string& why) {
  Fail(400, "invalid_header",
       absl::StrCat("malformed HTTP ", in_head ? "request: " : "body: ", why));
}

// Beast takes HTTP/1.0 and HTTP/1.1 only. A later 1.x is read as 1.1. Returns what put does.
size_t RequestParser::PutVersion(absl::string_view bytes, error_code& ec) {
  const size_t end = bytes.find("\r\n");
  const bool whole = end != absl::string_view::npos;
  std::string line(bytes.substr(0, end));
  if (!whole && absl::EndsWith(line, "\r")) line.pop_back();
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  const absl::string_view version = words.back();
  if (words.size() != 3 || version.size() != 8 || !absl::StartsWith(version, "HTTP/") ||
      !absl::ascii_isdigit(version[5]) || version[6] != '.' || !absl::ascii_isdigit(version[7]))
    return 0;
  if (!whole) {
    ec = http::error::need_more;
    return 0;
  }
  if (version[5] != '1') {
    Fail(505, "unsupported_http_version",
         absl::StrCat("the server speaks HTTP/1.1, not ", version));
    return 0;
  }
  line.back() = '1';
  line += "\r\n";
  const size_t taken = put(boost::asio::buffer(line), ec);
  if (ec == http::error::need_more) ec = {};  // the rest has not been given yet
  return taken;
}

// taken: lines that have been parsed. waiting: bytes of the next ones, which have not ended.
void RequestParser::CheckLines(bool of_head, absl::string_view taken, size_t waiting) {
  if (HasFold(taken))
    Fail(400, "invalid_header", "malformed HTTP request: a line that goes on in the next one");
  const size_t size = (of_head ? head_bytes_ : taken.size()) + waiting;
  if (size <= limits_.max_header_bytes) return;
  if (in_request_line_ && size > limits_.max_uri_bytes) return FailUri();
  Fail(431, "headers_too_large",
       absl::StrCat(of_head ? "the request head" : "the trailer, or the line of a chunk,",
                    " exceeds ", limits_.max_header_bytes, " bytes"));
}

void RequestParser::FailUri() {
  Fail(414, "uri_too_long", absl::StrCat("the URI exceeds ", limits_.max_uri_bytes, " bytes"));
}

void RequestParser::FailBody() {
  Fail(413, "body_too_large", absl::StrCat("the body exceeds ", limits_.max_body_bytes, " bytes"));
}

void RequestParser::on_request_impl(http::verb, beast_view method, beast_view target, int version,
                                    error_code&) {
  in_request_line_ = false;
  version_ = version;
  request_.method = Text(method);
  request_.target = Text(target);
  std::optional<std::string> path = TargetPath(request_.method, request_.target);
  if (path) {
    request_.path = *std::move(path);
  } else if (request_.target.size() <= limits_.max_uri_bytes) {
    Fail(400, "invalid_header",
         "malformed HTTP request: expected /PATH or http://HOST/PATH after the method");
  }
}

// Only the size of trailers counts: they change nothing.
void RequestParser::on_field_impl(http::field name, beast_view name_text, beast_view value,
                                  error_code&) {
  if (!is_header_done()) ReadField(name, Text(name_text), Text(value));
}

void RequestParser::ReadField(http::field name, const std::string& name_text, std::string value) {
  const auto first = [&value](std::string* to) {
    if (to->empty()) *to = std::move(value);
  };
  switch (name) {
    case http::field::content_type:
      return first(&request_.content_type);
    case http::field::authorization:
      return first(&request_.authorization);
    case http::field::connection:
      for (absl::string_view option : absl::StrSplit(value, ','))
        closes_ |= absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(option), "close");
      return;
    case http::field::content_encoding:
      return AddToList(value, &request_.content_encoding);
    case http::field::accept_encoding:
      return AddToList(value, &request_.accept_encoding);
    case http::field::accept:
      return AddToList(value, &request_.accept);
    case http::field::if_none_match:
      return AddToList(value, &request_.if_none_match);
    case http::field::origin:
      request_.has_origin = true;
      return first(&request_.origin);
    case http::field::host:
      several_hosts_ = host_.has_value();
      host_ = request_.host = std::move(value);
      return;
    case http::field::expect:
      for (absl::string_view what : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
        const bool known = absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(what), "100-continue");
        (known ? expects_continue_ : other_expectation_) = true;
      }
      return;
    case http::field::transfer_encoding:
      if (!absl::EqualsIgnoreCase(value, "chunked")) other_encoding_ = true;
      return;
    default:
      if (absl::EqualsIgnoreCase(name_text, "X-Api-Key")) return first(&request_.api_key);
      if (absl::EqualsIgnoreCase(name_text, "X-Request-Timeout"))
        return first(&request_.timeout_header);
      if (absl::EqualsIgnoreCase(name_text, "X-Request-Id") && !request_id_) {
        request_id_ = std::move(value);
      } else if (absl::EqualsIgnoreCase(name_text, "traceparent")) {
        request_.traceparents.push_back(std::move(value));
      } else if (absl::EqualsIgnoreCase(name_text, "tracestate")) {
        request_.tracestates.push_back(std::move(value));
      }
  }
}

// A client that is answered 400 here because of its encoding is not asked for more, because it is
// not certain where its body ends.
void RequestParser::on_header_impl(error_code&) {
  keep_alive_ = basic_parser::keep_alive() && !closes_;  // Beast misses it in HTTP/1.0
  if (version_ < 11) expects_continue_ = other_expectation_ = false;
  if (request_.target.size() > limits_.max_uri_bytes) FailUri();
  CheckHost();
  if (other_encoding_) Fail(400, "invalid_header", "Transfer-Encoding: only chunked is supported");
  if (chunked() && version_ < 11)
    Fail(400, "invalid_header", "Transfer-Encoding in a request of HTTP/1.0");
  if (other_expectation_)
    Fail(417, "unknown_expectation", "Expect: only 100-continue is supported");
  if (content_length().value_or(0) > limits_.max_body_bytes) FailBody();
  body_limit(limits_.max_body_bytes);  // of chunks
  if (request_id_ && GoodRequestId(*request_id_)) {
    request_.request_id = *request_id_;
  } else if (request_id_) {
    Fail(400, "invalid_header", "X-Request-Id must be 1 to 128 of A-Z a-z 0-9 . _ : -");
  }
}

// RFC 9112 3.2.
void RequestParser::CheckHost() {
  if (several_hosts_) {
    Fail(400, "invalid_header", "a request has one Host header");
  } else if (!host_ && version_ >= 11) {
    Fail(400, "invalid_header", "a request of HTTP/1.1 needs the header Host");
  } else if (host_ && !GoodHost(*host_)) {
    Fail(400, "invalid_header", "Host must be a host with or without a port");
  }
}

std::size_t RequestParser::TakeBody(beast_view bytes) {
  body_bytes_ += bytes.size();
  if (!drop_body_) request_.body.append(bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace coppice::coordinator
