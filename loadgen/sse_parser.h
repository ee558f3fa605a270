// Server-sent events from a byte stream cut anywhere. Called by the client for each piece of a
// response body. Thread-compatible. Source: WHATWG HTML, section 9.2.6.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::loadgen {

class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 16 << 20;

  // The data of every event that bytes completes, in order. Comments and other fields are skipped.
  std::vector<std::string> Feed(std::string_view bytes);
  bool overflowed() const {
    return overflowed_;
  }  // an event was longer than kMaxEventBytes: nothing more comes

 private:
  void EndLine(std::vector<std::string>* events);

  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, overflowed_ = false;
};

}  // namespace coppice::loadgen
