#include "coordinator/http/http_exchange.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/http_head.h"

namespace coppice::coordinator {
namespace {

// Bytes of output that are written together.
constexpr size_t kPart = 64 << 10;

// Bytes of a part whose memory the next part of a stream gets.
constexpr size_t kMostSpare = 1 << 10;

// Smaller bodies are not worth compressing: they need few packets anyway.
constexpr size_t kLeastCompressed = 4 << 10;
// Smaller ones are compressed in less than a millisecond.
constexpr size_t kLargeBody = 64 << 10;

}  // namespace

SessionExchange::SessionExchange(Options options, HttpHeaders headers, std::function<void()> wake)
    : options_(std::move(options)),
      keep_(options_.keep),
      wake_(std::move(wake)),
      headers_(std::move(headers)) {}

void SessionExchange::AddHeader(const std::string& name, const std::string& value) {
  headers_.emplace_back(name, value);
}

void SessionExchange::Reply(HttpReply reply) {
  if (replied_ || ended_ || gone_) return;
  replied_ = true;
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  if (reply.coded || reply.body.size() < kLeastCompressed) return Send(std::move(reply));
  reply.headers.emplace_back("Vary", "Accept-Encoding");
  if (!options_.gzip) return Send(std::move(reply));
  if (options_.jobs != nullptr && reply.body.size() >= kLargeBody)
    return CompressInBackground(std::move(reply));
  Compress(&reply);
  Send(std::move(reply));
}

void SessionExchange::Compress(HttpReply* reply) {
  std::optional<std::string> file = Gzip(reply->body);
  if (!file) return;  // no memory: it is sent as it is
  reply->body = *std::move(file);
  reply->headers.emplace_back("Content-Encoding", "gzip");
}

void SessionExchange::CompressInBackground(HttpReply reply) {
  const size_t bytes = reply.body.size();
  const auto shared = std::make_shared<HttpReply>(std::move(reply));
  options_.jobs->Post(
      options_.client, bytes, [shared] { Compress(shared.get()); },
      [shared, weak = weak_from_this()] {
        const std::shared_ptr<SessionExchange> self = weak.lock();
        if (self != nullptr && !self->gone_) self->Send(std::move(*shared));
      });
}

void SessionExchange::Send(HttpReply reply) {
  status_ = reply.status;
  output_.push_back(FormatHead(reply, options_.request_id, keep_, absl::Now()));
  if (options_.head_only) {
    // The client would take a body for the beginning of the next answer.
  } else if (reply.body.size() > kPart) {
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
  Append(FormatStreamHead(headers_, options_.request_id, options_.chunked, keep_, absl::Now()));
}

// The part of the output to which so many bytes are added.
std::string& SessionExchange::PartFor(size_t bytes) {
  if (output_.empty() || output_.back().size() + bytes > kPart)
    output_.push_back(std::exchange(spare_, {}));
  return output_.back();
}

void SessionExchange::Append(absl::string_view bytes) {
  queued_ += bytes.size();
  absl::StrAppend(&PartFor(bytes.size()), bytes);
}

// parts: of the chunk, one after the other.
void SessionExchange::AppendChunk(std::initializer_list<absl::string_view> parts) {
  size_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  std::string& output = PartFor(bytes);
  const size_t before = output.size();
  if (options_.chunked) absl::StrAppend(&output, absl::Hex(bytes), "\r\n");
  for (const absl::string_view part : parts) output.append(part.data(), part.size());
  if (options_.chunked) output += "\r\n";
  queued_ += output.size() - before;
}

void SessionExchange::SendEvent(const StreamEvent& event) {
  if (replied_ || ended_ || gone_ || unread_) return;
  if (queued_ > options_.max_unread_bytes) {
    unread_ = true;
    return wake_();
  }
  OpenStream();
  const bool named = !event.name.empty();
  AppendChunk(
      {named ? "event: " : "", event.name, named ? "\n" : "", "data: ", event.data, "\n\n"});
  wake_();
}

void SessionExchange::EndStream(bool keep_connection) {
  if (replied_ || ended_ || gone_ || unread_) return;
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

void SessionExchange::Written(size_t bytes) {
  queued_ -= std::min(queued_, bytes);
  std::string& part = output_.front();
  if (bytes < part.size()) {
    part.erase(0, bytes);
    return;
  }
  if (part.capacity() <= kMostSpare) {
    spare_ = std::move(part);
    spare_.clear();
  }
  output_.pop_front();
}

void SessionExchange::Silence(bool comment) {
  if (!stream_expected_ || replied_ || ended_ || gone_ || unread_) return;
  OpenStream();
  if (comment) AppendChunk({": keep-alive\n\n"});
}

void SessionExchange::ClientWent() {
  if (gone_ || ended_) return;
  gone_ = true;
  wake_();
  const std::function<void()> callback = std::exchange(on_disconnect_, nullptr);
  if (callback && !replied_) callback();
}

}  // namespace coppice::coordinator
