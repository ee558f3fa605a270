// The common parts of the components of a tokenizer.json: {"String": s} and {"Regex": r} patterns,
// and how deep a "Sequence" may nest. Called at start-up by the components.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "tokenizer/regex.h"

namespace coppice::tokenizer {

inline constexpr int kMaxNesting = 8;

absl::StatusOr<Regex> CompileJsonPattern(const nlohmann::json& json);

}  // namespace coppice::tokenizer
