// Frames over one connected, non-blocking TCP socket. Cuts the incoming bytes into frames and
// queues what could not be written yet. With a SecureLink, the bytes are those of its records.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/frame.h"
#include "comm/secure_link.h"
#include "google/protobuf/message_lite.h"

namespace coppice::comm {

class FrameStream {
 public:
  FrameStream(size_t max_body_bytes, int max_queued_frames);

  // Before the first byte of a connection: everything on it goes through this link. nullptr: plain.
  // Queued frames stay.
  void Secure(std::unique_ptr<SecureLink> link);
  // The handshake is done, or none is needed. Before that, only Read may be called, and it returns
  // no frame.
  bool ready() const { return link_ == nullptr || link_->ready(); }
  // Why the other end is not trusted; nullptr if it is, or has not finished its proof.
  const char* distrust() const { return link_ == nullptr ? nullptr : link_->fault(); }
  // Sends the first message of the handshake. False: the connection has ended.
  bool Greet(int fd);

  // Reads what has arrived, at most kReadAtOnce bytes. False: the connection has ended; frames read
  // before can still be taken.
  bool Read(int fd);
  // The next whole frame, valid until the next call of Read or Next. Empty when it is not complete
  // yet, or when fault() is set: then the rest of the stream cannot be parsed.
  absl::Span<const uint8_t> Next();
  FrameFault fault() const { return fault_; }

  // Writes the frame and queues what the socket does not accept; fd -1 queues all of it.
  // ResourceExhausted: too many frames are queued. Unavailable: the connection has ended.
  absl::Status Write(int fd, const std::string& name, const google::protobuf::MessageLite& message,
                     size_t body);
  bool Flush(int fd);  // false: the connection has ended
  bool writing() const { return !queued_.empty(); }
  // For a new connection: drops partly read and partly written frames and the queue.
  void Reset();

 private:
  static constexpr size_t kReadAtOnce = 1 << 20;
  static constexpr size_t kSmallBuffer = 64 << 10;

  void MakeRoom(size_t at_least);
  bool ReadRecords(int fd);
  bool OpenRecords();
  std::string& Sealed(const std::string& frame);

  const size_t max_body_bytes_;
  const size_t max_queued_frames_;
  std::unique_ptr<uint8_t[]> in_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;  // bytes [begin_, end_) wait in in_
  FrameFault fault_ = FrameFault::kNone;
  std::string frame_;  // the one being written; kept to reuse its memory
  std::deque<std::string> queued_;
  size_t written_ = 0;  // bytes of queued_.front() that are written
  std::unique_ptr<SecureLink> link_;
  std::string records_;        // the last frame, sealed
  bool front_sealed_ = false;  // queued_.front() is sealed already
};

}  // namespace coppice::comm
