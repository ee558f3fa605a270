#include "coordinator/http/http_exchange.h"

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

}  // namespace

std::string FormatReply(const HttpReply& reply, const std::string& request_id,
                        bool keep_connection) {
  std::string head =
      absl::StrCat("HTTP/1.1 ", reply.status, " ", Reason(reply.status), "\r\nServer: coppice\r\n",
                   "X-Request-Id: ", request_id, "\r\nContent-Type: ", reply.content_type,
                   "\r\nContent-Length: ", reply.body.size(), "\r\n");
  for (const auto& [name, value] : reply.headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, "Connection: ", keep_connection ? "keep-alive" : "close", "\r\n\r\n",
                  reply.body);
  return head;
}

SessionExchange::SessionExchange(std::string request_id, bool keep, bool chunked,
                                 std::function<void()> wake)
    : request_id_(std::move(request_id)), keep_(keep), chunked_(chunked), wake_(std::move(wake)) {}

void SessionExchange::AddHeader(const std::string& name, const std::string& value) {
  headers_.emplace_back(name, value);
}

void SessionExchange::Reply(HttpReply reply) {
  if (ended_ || gone_) return;
  status_ = reply.status;
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  output_ += FormatReply(reply, request_id_, keep_);
  ended_ = true;
  wake_();
}

void SessionExchange::OpenStream() {
  if (stream_open_) return;
  stream_open_ = true;
  if (!chunked_) keep_ = false;
  absl::StrAppend(&output_, "HTTP/1.1 200 OK\r\nServer: coppice\r\nX-Request-Id: ", request_id_,
                  "\r\n");
  for (const auto& [name, value] : headers_) absl::StrAppend(&output_, name, ": ", value, "\r\n");
  absl::StrAppend(&output_,
                  "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n",
                  "X-Accel-Buffering: no\r\n", chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
                  "Connection: ", keep_ ? "keep-alive" : "close", "\r\n\r\n");
}

void SessionExchange::AppendChunk(const std::string& bytes) {
  if (chunked_) {
    absl::StrAppend(&output_, absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
  } else {
    output_ += bytes;
  }
}

void SessionExchange::SendEvent(const std::string& data) {
  if (ended_ || gone_) return;
  OpenStream();
  AppendChunk(absl::StrCat("data: ", data, "\n\n"));
  wake_();
}

void SessionExchange::EndStream(bool keep_connection) {
  if (ended_ || gone_) return;
  OpenStream();
  if (chunked_) output_ += "0\r\n\r\n";
  keep_ = keep_ && keep_connection;
  ended_ = true;
  wake_();
}

void SessionExchange::OnDisconnect(std::function<void()> callback) {
  if (gone_) return callback();
  on_disconnect_ = std::move(callback);
}

std::string SessionExchange::TakeOutput() { return std::exchange(output_, std::string()); }

void SessionExchange::Silence() {
  if (!stream_expected_ || ended_ || gone_) return;
  OpenStream();
  AppendChunk(": keep-alive\n\n");
}

void SessionExchange::ClientWent() {
  if (gone_ || ended_) return;
  gone_ = true;
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (callback) callback();
  wake_();
}

}  // namespace coppice::coordinator
