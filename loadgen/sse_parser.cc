#include "loadgen/sse_parser.h"

#include <utility>

namespace coppice::loadgen {

std::vector<std::string> SseParser::Feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char c : bytes) {
    if (overflowed_) break;
    const bool second_of_crlf = after_cr_ && c == '\n';
    after_cr_ = c == '\r';
    if (second_of_crlf) continue;
    if (c == '\r' || c == '\n') {
      EndLine(&events);
    } else {
      line_.push_back(c);
      overflowed_ = line_.size() + data_.size() > kMaxEventBytes;
    }
  }
  return events;
}

void SseParser::EndLine(std::vector<std::string>* events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (has_data_) events->push_back(std::exchange(data_, {}));
    has_data_ = false;
    return;
  }
  std::string_view value = line;
  if (value.substr(0, 4) != "data" || (value.size() > 4 && value[4] != ':')) return;
  value.remove_prefix(value.size() > 4 ? 5 : 4);
  if (!value.empty() && value[0] == ' ') value.remove_prefix(1);
  if (has_data_) data_.push_back('\n');
  data_ += value;
  has_data_ = true;
}

}  // namespace coppice::loadgen
