// A work list of attention where kernels can read it.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/ops/work_list.h"
#include "tests/kernels/cuda/attention_fixture.h"

namespace coppice::kernels::cuda {

// A work list where the kernel can read it. Partial results are poisoned, counters zero.
class TestWork {
 public:
  TestWork(const StepPlan& plan, const WorkShape& shape)
      : list(MakeWorkList(plan, shape)),
        rows_(list.rows),
        chain_(list.chain),
        chain_position_(list.chain_position),
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
    work.rows = rows_.data();
    work.chain = chain_.data();
    work.chain_position = chain_position_.data();
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
  DeviceArray<int32_t> rows_, chain_, chain_position_;
  DeviceArray<uint64_t> masks_;
  DeviceArray<float> partials_;
  DeviceArray<uint32_t> counters_;
  std::vector<std::unique_ptr<DeviceArray<AttentionItem>>> items_;
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> begins_;
};

constexpr int64_t kSharedOfH100 = 227 << 10;

inline WorkShape ShapeOf(const AttentionShape& shape, int workers, int least_tiles) {
  WorkShape work;
  work.group = shape.group;
  work.kv_heads = shape.kv_heads;
  work.head_dim = shape.head_dim;
  DevicePool pool;
  pool.head_dim = shape.head_dim;
  work.classes = TileClasses(DType::kBF16, pool, kSharedOfH100);
  for (int& count : work.workers) count = workers;
  work.least_tiles = least_tiles;
  return work;
}

}  // namespace coppice::kernels::cuda
