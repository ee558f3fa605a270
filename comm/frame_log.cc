#include "comm/frame_log.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/spdlog.h"

namespace coppice::comm {

FrameLog::FrameLog() {
  // Protobuf would print a line for every bad string that a peer sends. Drop counts them instead
  // and limits the log.
  static auto* const replaced = google::protobuf::SetLogHandler(nullptr);
  (void)replaced;
}

bool FrameLog::Take(const std::string& name, absl::Span<const uint8_t> frame, size_t max_body_bytes,
                    google::protobuf::MessageLite* message) {
  FrameFault fault =
      CheckFrame(frame.data(), frame.size(), FrameKind(message->GetTypeName()), max_body_bytes);
  if (fault == FrameFault::kNone &&
      !message->ParseFromArray(frame.data() + kFrameHeaderBytes,
                               static_cast<int>(frame.size() - kFrameHeaderBytes))) {
    fault = FrameFault::kMalformed;
  }
  if (fault != FrameFault::kNone) {
    Drop(fault, name, frame.size());
    return false;
  }
  ++counters_.received;
  counters_.received_bytes += frame.size();
  return true;
}

void FrameLog::Drop(FrameFault fault, const std::string& name, size_t bytes) {
  const char* what = "malformed";
  if (fault == FrameFault::kOversized) {
    ++counters_.dropped_oversized;
    what = "oversized";
  } else if (fault == FrameFault::kVersion) {
    ++counters_.dropped_version;
    what = "of another protocol version,";
  } else if (fault == FrameFault::kForged) {
    ++counters_.dropped_forged;
    what = "damaged, repeated or forged,";
  } else {
    ++counters_.dropped_malformed;
  }
  ++dropped_since_log_;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_log_) return;
  next_log_ = now + std::chrono::seconds(5);
  spdlog::warn("{}: dropped {} frame(s), the last one {} {} bytes", name, dropped_since_log_, what,
               bytes);
  dropped_since_log_ = 0;
}

void FrameLog::Sent(size_t bytes) {
  ++counters_.sent;
  counters_.sent_bytes += bytes;
}

absl::Status CheckBodySize(const std::string& name, size_t body, size_t max_body_bytes) {
  if (body <= max_body_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": message of ", body, " bytes, at most ", max_body_bytes));
}

void WriteFrame(const google::protobuf::MessageLite& message, size_t body, uint8_t* frame) {
  WriteFrameHeader(FrameKind(message.GetTypeName()), static_cast<uint32_t>(body), frame);
  message.SerializeWithCachedSizesToArray(frame + kFrameHeaderBytes);
}

}  // namespace coppice::comm
