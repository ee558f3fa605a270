// The golden file of a whole model (tests/golden/README.md: other envelope): logits and greedy
// continuations of a checkpoint, against the production forward pass in f32. Used by golden_file.
#pragma once

#include <string>

#include "lab/golden/golden_file.h"

namespace coppice::golden {

// Whether the file is of this kind: {model, cases: [{text, ids, last_logits, mean_nll,
// greedy_next_40}]}.
bool IsModelFile(const Json& json);
// `json` is the file at `path`. The checkpoint is in models/<model> beside the file's folder.
// Reports a line for each case.
Tally RunModelFile(const Json& json, const std::string& path);

}  // namespace coppice::golden
