// Logs connections whose other end did not prove that it has the cluster key: at most one line
// every five seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::comm {

class RefusalLog {
 public:
  // name: the channel's. who: the other end. why: a clause such as "it has no cluster key".
  void Add(const std::string& name, absl::string_view who, absl::string_view why);

 private:
  uint64_t since_log_ = 0;
  std::chrono::steady_clock::time_point next_log_;
};

}  // namespace coppice::comm
