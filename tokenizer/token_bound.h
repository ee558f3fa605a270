// A lower bound of the number of tokens of a text, from the longest tokens of the vocabulary. Made
// by tokenizers at start-up, used by FewestTokens. Value type.
#pragma once

#include <bitset>
#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

class TokenBound {
 public:
  // A token stands for this text, in bytes.
  void AddToken(absl::string_view bytes);
  size_t longest() const { return longest_; }

  // The most bytes of any text that a token stands for. 0: there is no limit, since parts of a text
  // may get lost, or become one token, whatever their length.
  size_t of_all = 0;
  // The ASCII characters that never get lost and never become part of another, if an ASCII
  // character follows.
  std::bitset<128> kept;

  // keeps_run: whether a character that comes many times in a row stays what it is, but for the
  // first and the last of them, and each gets a token that stands for it.
  size_t Fewest(absl::string_view text, absl::FunctionRef<bool(absl::string_view)> keeps_run) const;

 private:
  size_t FewestOfRuns(absl::string_view text,
                      absl::FunctionRef<bool(absl::string_view)> keeps_run) const;

  size_t longest_ = 0;
  // By character: the most bytes of a token inside of a run of it.
  absl::flat_hash_map<std::string, size_t> longest_of_run_;
};

}  // namespace coppice::tokenizer
