// Counts the good and the dropped frames of one channel. Dropped frames are also logged, at most
// one line every five seconds.
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
  void Refused() { ++counters_.refused; }  // a connection was refused before its first frame

  const ChannelCounters& counters() const { return counters_; }

 private:
  ChannelCounters counters_;
  uint64_t dropped_since_log_ = 0;
  std::chrono::steady_clock::time_point next_log_;
};

// InvalidArgument "NAME: message of N bytes, at most M" when the body is too long.
absl::Status CheckBodySize(const std::string& name, size_t body, size_t max_body_bytes);

// Writes header and body to `frame`, which has kFrameHeaderBytes + body bytes. body must be
// message.ByteSizeLong(), called just before.
void WriteFrame(const google::protobuf::MessageLite& message, size_t body, uint8_t* frame);

}  // namespace coppice::comm
