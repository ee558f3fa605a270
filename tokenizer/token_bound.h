// A lower bound of the number of tokens of a text: no token stands for more than the longest. Made by
// tokenizers at start-up, used by FewestTokens. Value type.
#pragma once

#include <bitset>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

struct TokenBound {
  // Bytes of any text that a token stands for, at most; 0: there is no limit, since some of a text may
  // get lost, or become one token however much it is.
  size_t of_all = 0;
  // The ASCII characters that never get lost and never become part of another, if an ASCII character
  // follows; and how many of them a token stands for, at most.
  std::bitset<128> kept;
  size_t of_kept = 0;

  size_t Fewest(absl::string_view text) const;
};

}  // namespace coppice::tokenizer
