#include "kernels/cuda/steps/graph_cache.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
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
    absl::StatusOr<DeviceGraph> graph = DeviceGraph::Capture(
        stream_, name, [&] { return LaunchOps(list, list.ops, products_, stream_); });
    absl::Status why = graph.status();
    if (summed) {
      COPPICE_ASSIGN_OR_RETURN(const std::vector<int> failed, FailedRanks(communicator_, why));
      if (why.ok() && !failed.empty()) why = OfOthers(failed);
    }
    if (!why.ok()) {
      COPPICE_RETURN_IF_ERROR(FailureOfRanks(list.ops));  // another way of launching would not help
      Disable(why, summed);
      return false;
    }
    entry->graph = *std::move(graph);
  }
  COPPICE_RETURN_IF_ERROR(entry->graph.Launch(stream_, name));
  return true;
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
