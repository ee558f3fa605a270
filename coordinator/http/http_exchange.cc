#include "coordinator/http/http_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
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
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return status >= 500 ? "Internal Server Error" : "Status";
  }
}

// Bytes of output that are written together.
constexpr size_t kPart = 64 << 10;

}  // namespace

std::string FormatHead(const HttpReply& reply, const std::string& request_id,
                       bool keep_connection) {
  std::string head =
      absl::StrCat("HTTP/1.1 ", reply.status, " ", Reason(reply.status), "\r\nServer: coppice\r\n",
                   "X-Request-Id: ", request_id, "\r\nContent-Type: ", reply.content_type,
                   "\r\nContent-Length: ", reply.body.size(), "\r\n");
  for (const auto& [name, value] : reply.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, "Connection: ", keep_connection ? "keep-alive" : "close", "\r\n\r\n");
  return head;
}

SessionExchange::SessionExchange(Options options, std::function<void()> wake)
    : options_(std::move(options)), keep_(options_.keep), wake_(std::move(wake)) {}

void SessionExchange::AddHeader(const std::string& name, const std::string& value) {
  headers_.emplace_back(name, value);
}

void SessionExchange::Reply(HttpReply reply) {
  if (ended_ || gone_) return;
  status_ = reply.status;
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  output_.push_back(FormatHead(reply, options_.request_id, keep_));
  if (reply.body.size() > kPart) {
    output_.push_back(std::move(reply.body));  // not copied
  } else {
    output_.back() += reply.body;
  }
  ended_ = true;
  wake_();
}

void SessionExchange::OpenStream() {
  if (stream_open_) return;
  stream_open_ = true;
  if (!options_.chunked) keep_ = false;
  std::string head = absl::StrCat(
      "HTTP/1.1 200 OK\r\nServer: coppice\r\nX-Request-Id: ", options_.request_id, "\r\n");
  for (const auto& [name, value] : headers_) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(
      &head, "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n",
      "X-Accel-Buffering: no\r\n", options_.chunked ? "Transfer-Encoding: chunked\r\n" : "",
      "Connection: ", keep_ ? "keep-alive" : "close", "\r\n\r\n");
  Append(head);
}

void SessionExchange::Append(absl::string_view bytes) {
  queued_ += bytes.size();
  if (output_.empty() || output_.back().size() + bytes.size() > kPart) output_.emplace_back();
  absl::StrAppend(&output_.back(), bytes);
}

void SessionExchange::AppendChunk(const std::string& bytes) {
  if (options_.chunked) {
    Append(absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n"));
  } else {
    Append(bytes);
  }
}

void SessionExchange::SendEvent(const std::string& data) {
  if (ended_ || gone_ || unread_) return;
  if (queued_ > options_.max_unread_bytes) {
    unread_ = true;
    return wake_();
  }
  OpenStream();
  AppendChunk(absl::StrCat("data: ", data, "\n\n"));
  wake_();
}

void SessionExchange::EndStream(bool keep_connection) {
  if (ended_ || gone_ || unread_) return;
  OpenStream();
  if (options_.chunked) Append("0\r\n\r\n");
  keep_ = keep_ && keep_connection;
  ended_ = true;
  wake_();
}

void SessionExchange::OnDisconnect(std::function<void()> callback) {
  if (gone_) return callback();
  on_disconnect_ = std::move(callback);
}

std::string SessionExchange::TakeOutput() {
  std::string part = std::move(output_.front());
  output_.pop_front();
  queued_ -= std::min(queued_, part.size());
  return part;
}

void SessionExchange::Silence() {
  if (!stream_expected_ || ended_ || gone_ || unread_) return;
  OpenStream();
  AppendChunk(": keep-alive\n\n");
}

void SessionExchange::ClientWent() {
  if (gone_ || ended_) return;
  gone_ = true;
  wake_();
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (callback) callback();
}

}  // namespace coppice::coordinator
