// The time of each round by its parts, as a CSV file for measurements. Rows are buffered until
// Write, so that the file is written while the draft node works. Thread-compatible.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace coppice::worker {

struct RoundTimes {
  uint64_t sequence = 0;
  uint32_t round = 0;
  int rows = 0;              // rows of the sequence in the target pass
  int width = 0, depth = 0;  // shape of the requested forest; depth 0 = none
  int layers = 0;            // decided layers
  // Seconds. round_s: from verdict to verdict. forward_s: the target pass in it. draft_wait_s: from
  // the request for a draft to its arrival. draft_s: the draft node's part of that. draft_model_s:
  // the draft node's passes.
  double round_s = 0, forward_s = 0, draft_wait_s = 0, draft_s = 0, draft_model_s = 0;
};

class RoundTrace {
 public:
  explicit RoundTrace(const std::string& path);  // "" = no trace
  ~RoundTrace();
  RoundTrace(const RoundTrace&) = delete;
  RoundTrace& operator=(const RoundTrace&) = delete;

  void Add(const RoundTimes& times);
  void Write();

 private:
  std::FILE* file_ = nullptr;
  std::vector<RoundTimes> waiting_;
};

}  // namespace coppice::worker
