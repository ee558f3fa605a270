// The generated tokens before a row of logits, as far as the row's warp depends on them.
#pragma once

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"

namespace coppice::decoding {

// Only penalties read the tokens themselves. Without penalties their number is enough, and the
// state of the output's format if there is one.
struct RowPath {
  RowPath(int length) : length(length) {}  // NOLINT(google-explicit-constructor)
  RowPath(std::vector<TokenId> tokens)     // NOLINT(google-explicit-constructor)
      : length(static_cast<int>(tokens.size())), tokens(std::move(tokens)) {}
  int length = 0;
  std::vector<TokenId> tokens;           // empty or [length]
  OutputFormat::State format_state = 0;  // after them
};

// `path`, then `more` tokens. Holds the tokens only if the parameters have penalties.
RowPath MakeRowPath(const DecodingParams& params, const PathTree& paths, PathId path,
                    absl::Span<const TokenId> more = {});

}  // namespace coppice::decoding
