// The graphs of a backend's steps. A list of ops that comes again is captured and from then on
// enqueued with one call. What a graph is found by is the list itself, with all that its launches are
// given: sizes, addresses, weights. So a graph is never replayed for anything else than what it holds.
// Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_graph.h"
#include "kernels/cuda/device_op.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/matrix_products.h"

namespace coppice::kernels::cuda {

class GraphCache {
 public:
  // Lists that are remembered at most, captured or not; the one unused for longest goes first.
  static constexpr size_t kMost = 64;

  // *products and *stream must outlive the cache. warn: BackendOptions.
  GraphCache(MatrixProducts* products, DeviceStream* stream, bool enabled,
             std::function<void(const std::string&)> warn)
      : products_(products), stream_(stream), enabled_(enabled), warn_(std::move(warn)) {}

  // Enqueues the list by its graph, or returns false: then the caller is to launch its ops, after
  // this returned. False the first time that a list comes: it may never come again, kernels are
  // loaded when they are first launched, and algorithms of products chosen, which cannot be while
  // a stream is captured. False always once a capture failed, after one warning. `name` is named by
  // errors.
  absl::StatusOr<bool> Enqueue(const OpList& list, const std::string& name);

 private:
  struct Entry {
    OpList list;
    DeviceGraph graph;  // empty: came once
  };
  // At the front, or nullptr.
  Entry* Find(const OpList& list);
  // Remembers a list, in the place of another when there are kMost.
  void Add(const OpList& list);
  void Disable(const absl::Status& why);

  MatrixProducts* const products_;
  DeviceStream* const stream_;
  bool enabled_;
  const std::function<void(const std::string&)> warn_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace coppice::kernels::cuda
