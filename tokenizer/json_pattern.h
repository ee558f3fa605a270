// What the components of a tokenizer.json share: the {"String": s} or {"Regex": r} patterns of some
// of them, and how deep a "Sequence" of them may nest. Called at start-up by the components.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "tokenizer/regex.h"

namespace coppice::tokenizer {

inline constexpr int kMaxNesting = 8;

absl::StatusOr<Regex> CompileJsonPattern(const nlohmann::json& json);

}  // namespace coppice::tokenizer
