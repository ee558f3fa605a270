#include "comm/frame_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/frame_log.h"

namespace coppice::comm {
namespace {

// Returns the number of bytes that the socket took, or -1 if the connection has ended.
ssize_t SendSome(int fd, const char* data, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    const ssize_t result = send(fd, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK ? static_cast<ssize_t>(sent) : -1;
    sent += static_cast<size_t>(result);
  }
  return static_cast<ssize_t>(sent);
}

}  // namespace

FrameStream::FrameStream(size_t max_body_bytes, int max_queued_frames)
    : max_body_bytes_(max_body_bytes),
      max_queued_frames_(static_cast<size_t>(std::max(1, max_queued_frames))) {}

void FrameStream::Secure(std::unique_ptr<SecureLink> link) { link_ = std::move(link); }

bool FrameStream::Greet(int fd) {
  const std::string bytes = link_->TakeOutgoing();  // shorter than what a new socket takes at once
  return SendSome(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// The buffer grows with the bytes that have arrived, not with the length that a header announces.
void FrameStream::MakeRoom(size_t at_least) {
  const size_t held = end_ - begin_;
  if (held == 0 && capacity_ > kReadAtOnce) {  // free the memory of a large frame
    in_.reset();
    capacity_ = 0;
  }
  size_t wanted = capacity_;
  if (capacity_ - held < at_least) wanted = std::max(kSmallBuffer, 2 * capacity_);
  if (wanted != capacity_) {
    auto larger = std::make_unique_for_overwrite<uint8_t[]>(wanted);
    if (held > 0) std::memcpy(larger.get(), in_.get() + begin_, held);
    in_ = std::move(larger);
    capacity_ = wanted;
  } else if (begin_ > 0 && held > 0) {
    std::memmove(in_.get(), in_.get() + begin_, held);
  }
  begin_ = 0;
  end_ = held;
}

bool FrameStream::Read(int fd) {
  if (link_ != nullptr) return ReadRecords(fd);
  for (size_t total = 0; total < kReadAtOnce;) {
    MakeRoom(kSmallBuffer / 2);
    const size_t room = capacity_ - end_;
    const ssize_t result = recv(fd, in_.get() + end_, room, MSG_DONTWAIT);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (result == 0) return false;
    end_ += static_cast<size_t>(result);
    total += static_cast<size_t>(result);
    if (static_cast<size_t>(result) < room) return true;  // nothing more has arrived
  }
  return true;
}

bool FrameStream::ReadRecords(int fd) {
  for (size_t total = 0; total < kReadAtOnce;) {
    const absl::Span<uint8_t> room = link_->Room();
    const ssize_t result = recv(fd, room.data(), room.size(), MSG_DONTWAIT);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (result == 0 || !link_->Arrived(static_cast<size_t>(result))) return false;
    if (!Greet(fd) || !OpenRecords()) return false;
    total += static_cast<size_t>(result);
    if (static_cast<size_t>(result) < room.size()) return true;  // nothing more has arrived
  }
  return true;
}

// Moves the content of whole records to the buffer.
bool FrameStream::OpenRecords() {
  while (const std::optional<size_t> bytes = link_->NextRecord()) {
    MakeRoom(*bytes);
    if (!link_->OpenRecord(in_.get() + end_)) {
      fault_ = FrameFault::kForged;
      return false;
    }
    end_ += *bytes;
  }
  return true;
}

absl::Span<const uint8_t> FrameStream::Next() {
  if (fault_ != FrameFault::kNone || end_ - begin_ < kFrameHeaderBytes) return {};
  const uint8_t* frame = in_.get() + begin_;
  size_t bytes = 0;
  fault_ = CheckFrameHeader(frame, max_body_bytes_, &bytes);
  if (fault_ != FrameFault::kNone || end_ - begin_ < bytes) return {};
  begin_ += bytes;
  return {frame, bytes};
}

absl::Status FrameStream::Write(int fd, const std::string& name,
                                const google::protobuf::MessageLite& message, size_t body) {
  if (queued_.size() >= max_queued_frames_) {
    return absl::ResourceExhaustedError(name + ": send queue is full");
  }
  frame_.resize(kFrameHeaderBytes + body);
  WriteFrame(message, body, reinterpret_cast<uint8_t*>(frame_.data()));
  if (fd < 0 || !queued_.empty()) {
    queued_.push_back(std::move(frame_));
    return absl::OkStatus();
  }
  std::string& bytes = link_ == nullptr ? frame_ : Sealed(frame_);
  const ssize_t sent = SendSome(fd, bytes.data(), bytes.size());
  if (sent < 0) return absl::UnavailableError(name + ": the peer is gone");
  if (static_cast<size_t>(sent) < bytes.size()) {
    written_ = static_cast<size_t>(sent);
    front_sealed_ = link_ != nullptr;
    queued_.push_back(std::move(bytes));
  }
  for (std::string* kept : {&frame_, &records_}) {
    if (kept->capacity() > kReadAtOnce) std::string().swap(*kept);
  }
  return absl::OkStatus();
}

std::string& FrameStream::Sealed(const std::string& frame) {
  records_.clear();
  link_->Seal(frame, &records_);
  return records_;
}

bool FrameStream::Flush(int fd) {
  while (!queued_.empty()) {
    std::string& frame = queued_.front();
    if (link_ != nullptr && !std::exchange(front_sealed_, true)) frame = std::move(Sealed(frame));
    const ssize_t result = SendSome(fd, frame.data() + written_, frame.size() - written_);
    if (result < 0) return false;
    written_ += static_cast<size_t>(result);
    if (written_ < frame.size()) return true;
    queued_.pop_front();
    written_ = 0;
    front_sealed_ = false;
  }
  return true;
}

void FrameStream::Reset() {
  begin_ = end_ = written_ = 0;
  fault_ = FrameFault::kNone;
  queued_.clear();
  link_.reset();
  front_sealed_ = false;
}

}  // namespace coppice::comm
