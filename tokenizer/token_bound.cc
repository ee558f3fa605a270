#include "tokenizer/token_bound.h"

#include <algorithm>
#include <cstdint>

namespace coppice::tokenizer {

size_t TokenBound::Fewest(absl::string_view text) const {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t c = text[i], next = i + 1 < text.size() ? text[i + 1] : 0;
    count += c < 0x80 && next < 0x80 && kept[c];
  }
  const auto tokens = [](size_t bytes, size_t most) {
    return most == 0 ? 0 : (bytes + most - 1) / most;
  };
  return std::max(tokens(text.size(), of_all), tokens(count, of_kept));
}

}  // namespace coppice::tokenizer
