#include "kernels/cuda/graph_cache.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::kernels::cuda {

GraphCache::Entry* GraphCache::Find(const OpList& list) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->list != list) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return &entries_.front();
  }
  return nullptr;
}

void GraphCache::Add(const OpList& list) {
  if (entries_.size() == kMost) entries_.pop_back();
  entries_.emplace_front().list = list;
}

absl::StatusOr<bool> GraphCache::Enqueue(const OpList& list, const std::string& name) {
  if (!enabled_) return false;
  Entry* const entry = Find(list);
  if (entry == nullptr) {
    Add(list);
    return false;
  }
  if (entry->graph.empty()) {
    absl::StatusOr<DeviceGraph> graph = DeviceGraph::Capture(
        stream_, name, [&] { return LaunchOps(list, list.ops, products_, stream_); });
    if (!graph.ok()) {
      Disable(graph.status());
      return false;
    }
    entry->graph = *std::move(graph);
  }
  COPPICE_RETURN_IF_ERROR(entry->graph.Launch(stream_, name));
  return true;
}

void GraphCache::Disable(const absl::Status& why) {
  enabled_ = false;
  entries_.clear();
  if (!warn_) return;
  warn_(absl::StrCat("CUDA graphs are not used from now on, steps are launched op by op: ",
                     why.message()));
}

}  // namespace coppice::kernels::cuda
