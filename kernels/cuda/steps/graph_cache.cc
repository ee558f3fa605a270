#include "kernels/cuda/steps/graph_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kernels/cuda/device/overlap.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

// The views first: they tell most lists apart.
bool SameLists(absl::Span<const OpList> some, absl::Span<const OpList> others) {
  const auto same_views = [](const OpList& one, const OpList& other) {
    return one.step == other.step && one.work == other.work;
  };
  return std::equal(some.begin(), some.end(), others.begin(), others.end(), same_views) &&
         std::equal(some.begin(), some.end(), others.begin(), others.end());
}

absl::Status OfOthers(const std::vector<int>& failed) {
  return absl::UnavailableError(
      absl::StrCat("rank ", absl::StrJoin(failed, ", "), " has no graph, and says why"));
}

}  // namespace

GraphCache::Entry* GraphCache::Lists::Find(absl::Span<const OpList> wanted) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (!SameLists(entry->lists, wanted)) continue;
    entries.splice(entries.begin(), entries, entry);
    return &entries.front();
  }
  return nullptr;
}

void GraphCache::Lists::Add(absl::Span<const OpList> added) {
  if (entries.size() == most) entries.pop_back();
  entries.emplace_front().lists.assign(added.begin(), added.end());
}

void GraphCache::Lists::Disable() {
  enabled = false;
  entries.clear();
}

absl::StatusOr<bool> GraphCache::Enqueue(absl::Span<const OpList> lists, const std::string& name) {
  const bool summed = HasSums(lists.front().ops);
  Lists& known = summed ? summed_ : lists.size() > 1 ? joined_ : own_;
  const bool captures = std::all_of(lists.begin(), lists.end(),
                                    [](const OpList& list) { return CanCapture(list.ops); });
  if (!known.enabled || !captures) return false;
  Entry* const entry = known.Find(lists);
  if (entry == nullptr) {
    known.Add(lists);
    return false;
  }
  if (entry->graph.empty()) {
    const OverlapScope overlap(launches_overlap && known.overlap);
    absl::Status why;
    COPPICE_ASSIGN_OR_RETURN(entry->graph, Capture(lists, name, summed, &why));
    if (!why.ok() && launches_overlap) {
      const OverlapScope apart(false);
      const absl::Status with_overlap = std::exchange(why, absl::OkStatus());
      COPPICE_ASSIGN_OR_RETURN(entry->graph, Capture(lists, name, summed, &why));
      if (why.ok()) DropOverlap(with_overlap, summed);
    }
    if (!why.ok()) {
      COPPICE_RETURN_IF_ERROR(
          FailureOfRanks(lists.front().ops));  // another way of launching would not help
      Disable(why, summed);
      return false;
    }
  }
  COPPICE_RETURN_IF_ERROR(entry->graph.Launch(stream_, name));
  return true;
}

absl::StatusOr<DeviceGraph> GraphCache::Capture(absl::Span<const OpList> lists,
                                                const std::string& name, bool summed,
                                                absl::Status* why) {
  absl::StatusOr<DeviceGraph> graph = DeviceGraph::Capture(stream_, name, [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(FailureOfRanks(lists.front().ops));
    for (const OpList& list : lists)
      COPPICE_RETURN_IF_ERROR(LaunchOps(list, list.ops, products_, stream_));
    return absl::OkStatus();
  });
  *why = graph.status();
  if (summed) {
    COPPICE_ASSIGN_OR_RETURN(const std::vector<int> failed, FailedRanks(communicator_, *why));
    if (why->ok() && !failed.empty()) *why = OfOthers(failed);
  }
  return why->ok() ? *std::move(graph) : DeviceGraph();
}

// The first time alone is worth a warning: all lists fail for one reason.
void GraphCache::DropOverlap(const absl::Status& why, bool summed) {
  const bool first = own_.overlap && summed_.overlap;
  if (summed) {
    summed_.overlap = false;
  } else {
    own_.overlap = joined_.overlap = false;
  }
  if (!first || !warn_) return;
  warn_(absl::StrCat("the launches of CUDA graphs do not overlap from now on: ", why.message()));
}

void GraphCache::Disable(const absl::Status& why, bool summed) {
  own_.Disable();
  joined_.Disable();
  const bool all = summed || communicator_->size() == 1;
  if (all) summed_.Disable();
  if (!warn_) return;
  warn_(absl::StrCat("CUDA graphs are not used from now on",
                     all ? ", steps are" : " for what has no sums over the ranks, it is",
                     " launched op by op: ", why.message()));
}

}  // namespace coppice::kernels::cuda
