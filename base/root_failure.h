// Errors that a rank has because another rank failed. mpirun ends all ranks as soon as one exits.
// If a rank with such an error exits first, the rank that failed cannot report why.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice {

// An Aborted error of this rank. The rank that failed reports the root failure.
absl::Status OtherRankFailed(const std::string& message);

// Gives the rank with the root failure time to tell it, where `status` comes from OtherRankFailed.
// Returns at once after any other status. For the end of the process.
void LetRootFailureBeTold(const absl::Status& status);

}  // namespace coppice
