// A lower bound of the number of tokens of a text: it divides by the length of the longest token.
// Made by tokenizers at start-up, used by FewestTokens. Value type.
#pragma once

#include <bitset>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

struct TokenBound {
  // The most bytes of any text that a token stands for. 0: there is no limit, since parts of a text
  // may get lost, or become one token, whatever their length.
  size_t of_all = 0;
  // The ASCII characters that never get lost and never become part of another, if an ASCII
  // character follows; and the most of them that a token stands for.
  std::bitset<128> kept;
  size_t of_kept = 0;

  size_t Fewest(absl::string_view text) const;
};

}  // namespace coppice::tokenizer
