#include "decoding/row_path.h"

namespace coppice::decoding {

sampling::RowPath MakeRowPath(const DecodingParams& params, const PathTree& paths, PathId path,
                              absl::Span<const TokenId> more) {
  sampling::RowPath row = paths.length(path) + static_cast<int>(more.size());
  if (params.sampling.penalises()) {
    row.tokens = paths.Tokens(path);
    row.tokens.insert(row.tokens.end(), more.begin(), more.end());
  }
  if (params.format != nullptr) {
    row.format_state = paths.format_state(path);
    for (const TokenId token : more) {
      row.format_state = params.format->Next(row.format_state, token);
    }
  }
  return row;
}

}  // namespace coppice::decoding
