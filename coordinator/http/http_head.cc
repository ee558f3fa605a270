#include "coordinator/http/http_head.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace coppice::coordinator {
namespace {

constexpr int kNoContent = 204, kNotModified = 304;  // these have no body

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return status >= 500 ? "Internal Server Error" : "Status";
  }
}

std::string Begin(int status, const std::string& request_id, absl::Time now) {
  return absl::StrCat("HTTP/1.1 ", status, " ", Reason(status),
                      "\r\nServer: coppice\r\nDate: ", HttpDate(now),
                      "\r\nX-Request-Id: ", request_id, "\r\n");
}

void AddLine(absl::string_view name, absl::string_view value, std::string* head) {
  absl::StrAppend(head, name, ": ", value, "\r\n");
}

void End(bool keep_connection, std::string* head) {
  AddLine("Connection", keep_connection ? "keep-alive" : "close", head);
  absl::StrAppend(head, "\r\n");
}

}  // namespace

absl::string_view MediaType(absl::string_view content_type) {
  return absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';')));
}

std::string HttpDate(absl::Time time) {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", time, absl::UTCTimeZone());
}

std::string FormatHead(const HttpReply& reply, const std::string& request_id, bool keep_connection,
                       absl::Time now) {
  std::string head = Begin(reply.status, request_id, now);
  if (reply.status != kNoContent && reply.status != kNotModified) {
    AddLine("Content-Type", reply.content_type, &head);
    AddLine("Content-Length", absl::StrCat(reply.body.size()), &head);
  }
  for (const auto& [name, value] : reply.headers) AddLine(name, value, &head);
  End(keep_connection, &head);
  return head;
}

std::string FormatStreamHead(const HttpHeaders& headers, const std::string& request_id,
                             bool chunked, bool keep_connection, absl::Time now) {
  std::string head = Begin(200, request_id, now);
  for (const auto& [name, value] : headers) AddLine(name, value, &head);
  AddLine("Content-Type", "text/event-stream; charset=utf-8", &head);
  AddLine("Cache-Control", "no-cache", &head);
  AddLine("X-Accel-Buffering", "no", &head);
  if (chunked) AddLine("Transfer-Encoding", "chunked", &head);
  End(keep_connection, &head);
  return head;
}

}  // namespace coppice::coordinator
