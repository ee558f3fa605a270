// CUDA graphs of the ops of steps. When a list of ops is seen again, it is captured, and from then
// on enqueued with one call. The key of a graph is the whole list with all arguments of its
// launches: sizes, addresses, weights. So equal lists, and only these, use a graph. NCCL needs a
// sum to be captured on all ranks or on none. The ranks agree on each capture that has sums over
// the ranks; lists without such sums do not affect this. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/device_graph.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/steps/device_op.h"

namespace coppice::kernels::cuda {

class GraphCache {
 public:
  // The most lists that are remembered, captured or not; the least recently used goes first. With
  // several ranks, this many with sums over them and this many without.
  static constexpr size_t kMost = 64;
  // The same for several lists that have one graph, which is larger.
  static constexpr size_t kMostJoined = 16;

  // *products, *stream and *communicator must outlive the cache. warn: BackendOptions.
  GraphCache(MatrixProducts* products, DeviceStream* stream, comm::Communicator* communicator,
             bool enabled, std::function<void(const std::string&)> warn)
      : products_(products),
        stream_(stream),
        communicator_(communicator),
        warn_(std::move(warn)),
        own_{enabled, kMost, {}},
        joined_{enabled, kMostJoined, {}},
        summed_{enabled, kMost, {}} {}

  // Enqueues the list by its graph, or returns false: then the caller must launch its ops
  // afterwards. False the first time that a list occurs: it may never occur again, kernels are
  // loaded when they are first launched, and algorithms of products are chosen then, which is
  // impossible while a stream is captured. If launches overlap (device/overlap.h) and a capture
  // fails, it is tried without, and if that works graphs are captured so from then on, with one
  // warning. After another failed capture always false, with one warning; if the capture had sums
  // over the ranks, on each of them. Then it is collective when a list occurs for the second time,
  // and all ranks overlap launches or none. Errors name `name`.
  absl::StatusOr<bool> Enqueue(const OpList& list, const std::string& name) {
    return Enqueue(absl::MakeConstSpan(&list, 1), name);
  }
  // The same for lists that follow each other, by one graph. Not of ranks that sum.
  absl::StatusOr<bool> Enqueue(absl::Span<const OpList> lists, const std::string& name);

 private:
  struct Entry {
    std::vector<OpList> lists;  // launched one after the other
    DeviceGraph graph;          // empty: they were seen once
  };
  struct Lists {
    // At the front, or nullptr.
    Entry* Find(absl::Span<const OpList> wanted);
    // Remembers lists. If there are `most`, they replace others.
    void Add(absl::Span<const OpList> added);
    void Disable();

    bool enabled;
    size_t most;
    std::list<Entry> entries;  // most recently used first
    bool overlap = true;       // captures keep the overlap of launches
  };
  // why: OK, or why there is no graph; if there are sums over the ranks, on all of them or on none.
  // An error: the ranks could not agree.
  absl::StatusOr<DeviceGraph> Capture(absl::Span<const OpList> lists, const std::string& name,
                                      bool summed, absl::Status* why);
  void DropOverlap(const absl::Status& why, bool summed);
  void Disable(const absl::Status& why, bool summed);

  MatrixProducts* const products_;
  DeviceStream* const stream_;
  comm::Communicator* const communicator_;
  const std::function<void(const std::string&)> warn_;
  Lists own_, joined_, summed_;  // single lists, several, and those with sums over the ranks
};

}  // namespace coppice::kernels::cuda
