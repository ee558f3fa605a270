// Which options of a run fit together; the table of flags says what each may be. Called by options.
// Pure function.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "loadgen/options.h"

namespace coppice::loadgen {

// "--flag: expected ...", the form of every refusal of an option.
absl::Status RefuseFlag(absl::string_view flag, absl::string_view expected);

absl::Status CheckOptions(const LoadgenOptions& options);

}  // namespace coppice::loadgen
