// Parses server-sent events from a byte stream that arrives in arbitrary pieces. Called by the
// client for each piece of a response body. Thread-compatible. Source: WHATWG HTML, section 9.2.6.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::loadgen {

class SseParser {
 public:
  static constexpr size_t kMaxEventBytes = 16 << 20;

  // Returns the data of every event completed by these bytes, in order. Comments and other fields
  // are ignored.
  std::vector<std::string> Feed(std::string_view bytes);
  // An event was longer than kMaxEventBytes: no further events are returned.
  bool overflowed() const { return overflowed_; }

 private:
  void EndLine(std::vector<std::string>* events);

  std::string line_, data_;
  bool has_data_ = false, after_cr_ = false, overflowed_ = false;
};

}  // namespace coppice::loadgen
