#include "decoding/row_path.h"

namespace coppice::decoding {

RowPath MakeRowPath(const DecodingParams& params, const PathTree& paths, PathId path,
                    absl::Span<const TokenId> more) {
  if (!params.warp.penalises()) return paths.length(path) + static_cast<int>(more.size());
  std::vector<TokenId> tokens = paths.Tokens(path);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

}  // namespace coppice::decoding
