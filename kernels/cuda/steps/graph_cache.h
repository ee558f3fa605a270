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

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/device_graph.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/steps/device_op.h"

namespace coppice::kernels::cuda {

class GraphCache {
 public:
  // Lists that are remembered at most, captured or not; the one unused for longest goes first. Of
  // several ranks, so many with sums over them and so many without.
  static constexpr size_t kMost = 64;

  // *products, *stream and *communicator must outlive the cache. warn: BackendOptions.
  GraphCache(MatrixProducts* products, DeviceStream* stream, comm::Communicator* communicator,
             bool enabled, std::function<void(const std::string&)> warn)
      : products_(products),
        stream_(stream),
        communicator_(communicator),
        warn_(std::move(warn)),
        own_{enabled, {}},
        summed_{enabled, {}} {}

  // Enqueues the list by its graph, or returns false: then the caller is to launch its ops, after
  // this returned. False the first time that a list comes: it may never come again, kernels are
  // loaded when they are first launched, and algorithms of products chosen, which cannot be while
  // a stream is captured. False always once a capture failed, after one warning; where it had sums
  // over the ranks, on each of them. Collective then when a list comes for the second time. `name`
  // is named by errors.
  absl::StatusOr<bool> Enqueue(const OpList& list, const std::string& name);

 private:
  struct Entry {
    OpList list;
    DeviceGraph graph;  // empty: the list was seen once
  };
  struct Lists {
    // At the front, or nullptr.
    Entry* Find(const OpList& list);
    // Remembers a list, in the place of another when there are kMost.
    void Add(const OpList& list);
    void Disable();

    bool enabled;
    std::list<Entry> entries;  // most recently used first
  };
  void Disable(const absl::Status& why, bool summed);

  MatrixProducts* const products_;
  DeviceStream* const stream_;
  comm::Communicator* const communicator_;
  const std::function<void(const std::string&)> warn_;
  Lists own_, summed_;  // without and with sums over the ranks
};

}  // namespace coppice::kernels::cuda
