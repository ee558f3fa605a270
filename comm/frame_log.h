// Counts the frames of one channel, good and dropped; a dropped one is also logged, at most one
// line every five seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "comm/channel.h"
#include "comm/frame.h"
#include "google/protobuf/message_lite.h"

namespace coppice::comm {

class FrameLog {
 public:
  FrameLog();

  // Parses a whole frame into *message and counts it. False: it was dropped. `name` is the
  // channel's, for the log.
  bool Take(const std::string& name, absl::Span<const uint8_t> frame, size_t max_body_bytes,
            google::protobuf::MessageLite* message);
  void Drop(FrameFault fault, const std::string& name, size_t bytes);
  void Sent(size_t bytes);

  const ChannelCounters& counters() const { return counters_; }

 private:
  ChannelCounters counters_;
  uint64_t dropped_since_log_ = 0;
  std::chrono::steady_clock::time_point next_log_;
};

// InvalidArgument "NAME: message of N bytes, at most M" when the body would be longer than that.
absl::Status CheckBodySize(const std::string& name, size_t body, size_t max_body_bytes);

// Header and body into `frame`, of kFrameHeaderBytes + body bytes; body = message.ByteSizeLong(),
// called just before.
void WriteFrame(const google::protobuf::MessageLite& message, size_t body, uint8_t* frame);

}  // namespace coppice::comm
