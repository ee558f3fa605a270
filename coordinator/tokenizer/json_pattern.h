// The {"String": s} or {"Regex": r} patterns of a tokenizer.json. Called at start-up by the
// components that have one.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/regex.h"

namespace coppice {

absl::StatusOr<Regex> CompileJsonPattern(const nlohmann::json& json);

}  // namespace coppice
