#include "base/root_failure.h"

#include "absl/strings/cord.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace coppice {
namespace {

constexpr char kMark[] = "coppice/other_rank_failed";
// The other rank knows its error already and only has to write a line. This is more than it needs,
// even on a busy machine, and short compared with the start of a replica.
constexpr absl::Duration kTimeToTell = absl::Seconds(2);

}  // namespace

absl::Status OtherRankFailed(const std::string& message) {
  absl::Status status = absl::AbortedError(message);
  status.SetPayload(kMark, absl::Cord());
  return status;
}

void LetRootFailureBeTold(const absl::Status& status) {
  if (status.GetPayload(kMark).has_value()) absl::SleepFor(kTimeToTell);
}

}  // namespace coppice
