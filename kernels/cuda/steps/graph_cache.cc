#include "kernels/cuda/steps/graph_cache.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kernels/cuda/device/overlap.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

absl::Status OfOthers(const std::vector<int>& failed) {
  return absl::UnavailableError(
      absl::StrCat("rank ", absl::StrJoin(failed, ", "), " has no graph, and says why"));
}

}  // namespace

GraphCache::Entry* GraphCache::Lists::Find(const OpList& list) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->list != list) continue;
    entries.splice(entries.begin(), entries, entry);
    return &entries.front();
  }
  return nullptr;
}

void GraphCache::Lists::Add(const OpList& list) {
  if (entries.size() == kMost) entries.pop_back();
  entries.emplace_front().list = list;
}

void GraphCache::Lists::Disable() {
  enabled = false;
  entries.clear();
}

absl::StatusOr<bool> GraphCache::Enqueue(const OpList& list, const std::string& name) {
  const bool summed = HasSums(list.ops);
  Lists& lists = summed ? summed_ : own_;
  if (!lists.enabled || !CanCapture(list.ops)) return false;
  Entry* const entry = lists.Find(list);
  if (entry == nullptr) {
    lists.Add(list);
    return false;
  }
  if (entry->graph.empty()) {
    const OverlapScope overlap(launches_overlap && lists.overlap);
    absl::Status why;
    COPPICE_ASSIGN_OR_RETURN(entry->graph, Capture(list, name, summed, &why));
    if (!why.ok() && launches_overlap) {
      const OverlapScope apart(false);
      const absl::Status with_overlap = std::exchange(why, absl::OkStatus());
      COPPICE_ASSIGN_OR_RETURN(entry->graph, Capture(list, name, summed, &why));
      if (why.ok()) DropOverlap(with_overlap, summed);
    }
    if (!why.ok()) {
      COPPICE_RETURN_IF_ERROR(FailureOfRanks(list.ops));  // another way of launching would not help
      Disable(why, summed);
      return false;
    }
  }
  COPPICE_RETURN_IF_ERROR(entry->graph.Launch(stream_, name));
  return true;
}

absl::StatusOr<DeviceGraph> GraphCache::Capture(const OpList& list, const std::string& name,
                                                bool summed, absl::Status* why) {
  absl::StatusOr<DeviceGraph> graph = DeviceGraph::Capture(stream_, name, [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(FailureOfRanks(list.ops));
    return LaunchOps(list, list.ops, products_, stream_);
  });
  *why = graph.status();
  if (summed) {
    COPPICE_ASSIGN_OR_RETURN(const std::vector<int> failed, FailedRanks(communicator_, *why));
    if (why->ok() && !failed.empty()) *why = OfOthers(failed);
  }
  return why->ok() ? *std::move(graph) : DeviceGraph();
}

// The first time alone is worth a warning: lists with sums and without fail for one reason.
void GraphCache::DropOverlap(const absl::Status& why, bool summed) {
  const bool first = own_.overlap && summed_.overlap;
  (summed ? summed_ : own_).overlap = false;
  if (!first || !warn_) return;
  warn_(absl::StrCat("the launches of CUDA graphs do not overlap from now on: ", why.message()));
}

void GraphCache::Disable(const absl::Status& why, bool summed) {
  own_.Disable();
  const bool all = summed || communicator_->size() == 1;
  if (all) summed_.Disable();
  if (!warn_) return;
  warn_(absl::StrCat("CUDA graphs are not used from now on",
                     all ? ", steps are" : " for what has no sums over the ranks, it is",
                     " launched op by op: ", why.message()));
}

}  // namespace coppice::kernels::cuda
