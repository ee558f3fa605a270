// Errors that a rank has because another rank failed. mpirun ends all ranks as soon as one exits.
// If a rank with such an error exits first, the rank that failed cannot report why.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice {

// An Aborted error of this rank. The rank that failed reports the root failure.
absl::Status OtherRankFailed(const std::string& message);

// Call it before the process ends with `status`. If the status comes from OtherRankFailed, waits so
// that the rank with the root failure can report it. Otherwise returns at once.
void LetRootFailureBeTold(const absl::Status& status);

}  // namespace coppice
