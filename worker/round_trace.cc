#include "worker/round_trace.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>

namespace coppice::worker {

RoundTrace::RoundTrace(const std::string& path) {
  if (path.empty()) return;
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) {
    spdlog::warn("--trace_rounds {}: {}", path, std::strerror(errno));
    return;
  }
  std::fprintf(file_,
               "sequence,round,rows,width,depth,layers,round_us,forward_us,draft_wait_us,draft_us,"
               "draft_model_us,overhead_us\n");
}

RoundTrace::~RoundTrace() {
  Write();
  if (file_ != nullptr) std::fclose(file_);
}

void RoundTrace::Add(const RoundTimes& times) {
  if (file_ != nullptr) waiting_.push_back(times);
}

void RoundTrace::Write() {
  for (const RoundTimes& t : waiting_) {
    std::fprintf(file_, "%llu,%u,%d,%d,%d,%d,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f\n",
                 static_cast<unsigned long long>(t.sequence), t.round, t.rows, t.width, t.depth,
                 t.layers, t.round_s * 1e6, t.forward_s * 1e6, t.draft_wait_s * 1e6,
                 t.draft_s * 1e6, t.draft_model_s * 1e6,
                 (t.round_s - t.forward_s - t.draft_model_s) * 1e6);
  }
  waiting_.clear();
}

}  // namespace coppice::worker
