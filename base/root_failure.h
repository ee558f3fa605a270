// Errors that a rank has because of another rank. mpirun ends all ranks as soon as one has exited,
// and a rank that ends first by such an error would leave nobody to say what happened.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace coppice {

// An Aborted error of this rank, whose root failure another rank has and tells.
absl::Status OtherRankFailed(const std::string& message);

// Gives the rank with the root failure time to tell it, where `status` comes from OtherRankFailed.
// Returns at once after any other status. For the end of the process.
void LetRootFailureBeTold(const absl::Status& status);

}  // namespace coppice
