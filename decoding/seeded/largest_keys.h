// The largest of the keys that a search has seen in a layer, as a heap: a bound below which
// candidates do not matter. Used by search_decoder. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {

class LargestKeys {
 public:
  // Keeps width + 1 keys; width >= 1.
  explicit LargestKeys(size_t width) : width_(width) {}
  void Clear() { heap_.clear(); }
  void Add(double key) {
    if (heap_.size() > width_) {
      if (!(key > heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    heap_.push_back(key);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  // The width-th largest key; -inf if there are fewer.
  double Last() const {
    if (heap_.size() < width_) return sampling::kLogZero;
    if (heap_.size() == width_) return heap_.front();
    // The smallest of width + 1 keys is the first of the heap, the next one of its two children.
    return heap_.size() == 2 ? heap_[1] : std::min(heap_[1], heap_[2]);
  }
  // The one behind it.
  double Next() const { return heap_.size() <= width_ ? sampling::kLogZero : heap_.front(); }

 private:
  const size_t width_;
  std::vector<double> heap_;
};

}  // namespace coppice::decoding
