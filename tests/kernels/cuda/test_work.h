// A work list of tiled attention for tests of the kernel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/work_list.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

// A work list where the kernel can read it. Partial results are poisoned, counters zero.
class TestWork {
 public:
  TestWork(const StepPlan& plan, const WorkShape& shape)
      : list(MakeWorkList(plan, shape)),
        chain_(list.chain),
        masks_(list.masks),
        partials_(list.partial_floats),
        counters_(std::vector<uint32_t>(list.merges, 0)) {
    DeviceWork& work = work_[0] = {};
    view.work = work_.data();
    for (int c = 0; c < kTileClasses; ++c) {
      items_.push_back(std::make_unique<DeviceArray<AttentionItem>>(list.classes[c].items));
      begins_.push_back(std::make_unique<DeviceArray<int32_t>>(list.classes[c].worker_begin));
      work.classes[c].items = items_.back()->data();
      work.classes[c].worker_begin = begins_.back()->data();
      work.classes[c].workers = static_cast<int32_t>(begins_.back()->size()) - 1;
      // More blocks than workers, as in a graph of many lists; none where there are no items.
      view.blocks[c] = work.classes[c].workers == 0 ? 0 : work.classes[c].workers + c;
    }
    work.chain = chain_.data();
    work.masks = masks_.data();
    work.partials = partials_.data();
    work.counters = counters_.data();
  }
  void ExpectCountersZero() {
    for (size_t i = 0; i < counters_.size(); ++i) ASSERT_EQ(counters_[i], 0u);
  }

  WorkList list;
  WorkView view;

 private:
  DeviceArray<DeviceWork> work_{1};
  DeviceArray<int32_t> chain_;
  DeviceArray<uint64_t> masks_;
  DeviceArray<float> partials_;
  DeviceArray<uint32_t> counters_;
  std::vector<std::unique_ptr<DeviceArray<AttentionItem>>> items_;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> begins_;
};

}  // namespace coppice::kernels::cuda
