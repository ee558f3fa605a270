#include "kernels/cuda/runtime/rank_agreement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/root_failure.h"
#include "base/status.h"

namespace coppice::kernels::cuda {

absl::StatusOr<std::vector<int>> FailedRanks(comm::Communicator* communicator,
                                             const absl::Status& mine) {
  std::vector<float> failed(communicator->size(), 0.0f);
  if (!mine.ok()) failed[communicator->rank()] = 1.0f;
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(failed)));
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator->size(); ++rank) {
    if (failed[rank] != 0) ranks.push_back(rank);
  }
  return ranks;
}

absl::Status Agree(comm::Communicator* communicator, const absl::Status& mine) {
  if (communicator->size() == 1) return mine;
  const absl::StatusOr<std::vector<int>> failed = FailedRanks(communicator, mine);
  if (!mine.ok()) return mine;
  COPPICE_RETURN_IF_ERROR(failed.status());
  if (failed->empty()) return absl::OkStatus();
  return OtherRankFailed(absl::StrCat("rank ", communicator->rank(), " of ", communicator->size(),
                                      " ends because of rank ", absl::StrJoin(*failed, ", "),
                                      ", which says why"));
}

}  // namespace coppice::kernels::cuda
