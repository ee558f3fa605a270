// The generated tokens before a row of logits, as far as the row's sampling parameters depend on
// them.
#pragma once

#include <utility>
#include <vector>

#include "base/output_format.h"
#include "base/types.h"

namespace coppice::sampling {

// Only penalties read the tokens themselves. Without penalties their number is enough, and the
// state of the output's format if there is one.
struct RowPath {
  RowPath(int length) : length(length) {}  // NOLINT(google-explicit-constructor)
  RowPath(std::vector<TokenId> tokens)     // NOLINT(google-explicit-constructor)
      : length(static_cast<int>(tokens.size())), tokens(std::move(tokens)) {}
  int length = 0;
  std::vector<TokenId> tokens;           // empty or [length]
  OutputFormat::State format_state = 0;  // state of the format after the tokens
};

}  // namespace coppice::sampling
