// The path before a row of logits, as sampling reads it.
#pragma once

#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"
#include "sampling/row_path.h"

namespace coppice::decoding {

// `path`, then `more` tokens. Holds the tokens only if the parameters have penalties.
sampling::RowPath MakeRowPath(const DecodingParams& params, const PathTree& paths, PathId path,
                              absl::Span<const TokenId> more = {});

}  // namespace coppice::decoding
