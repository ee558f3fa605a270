#include "comm/refusal_log.h"

#include "spdlog/spdlog.h"

namespace coppice::comm {

void RefusalLog::Add(const std::string& name, absl::string_view who, absl::string_view why) {
  ++since_log_;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_log_) return;
  next_log_ = now + std::chrono::seconds(5);
  spdlog::warn("{}: refused {} connection(s), the last one with {}: {}", name, since_log_,
               std::string(who), std::string(why));
  since_log_ = 0;
}

}  // namespace coppice::comm
