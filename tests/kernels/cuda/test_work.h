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
      items_.push_back(
          std::make_unique<DeviceArray<AttentionItem>>(ItemsByWorker(list.classes[c])));
      work.classes[c].items = items_.back()->data();
      work.classes[c].workers = static_cast<int32_t>(list.classes[c].worker_begin.size()) - 1;
      work.classes[c].count = static_cast<int32_t>(items_.back()->size());
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

// V of a token of one request that is not finite makes the rows that see it NaN, and changes no bit
// of the others, which the token passes by.
template <class T, class P = T>
void TestNotFinite(const AttentionShape& shape, bool exact, bool wide = false) {
  const std::vector<RequestSpec> requests = {{160 + 20, 1, {1, 2}}, {160 + 70, 0, {3}, 160, 0}};
  AttentionCase<T, P> attention(shape, requests, 5);
  WorkShape work_shape = ShapeOf(shape, 2, 1);
  work_shape.exact = exact;
  TestWork work(attention.plan(), work_shape);
  ASSERT_FALSE(work.list.rows.empty());
  const auto run = [&] {
    TiledAttention(attention.step(), attention.Args(), work.view, attention.pool(), nullptr,
                   wide ? kTileClasses - 1 : kTileClasses);
    if (wide) {
      ASSERT_EQ(
          AttendWide(attention.step(), attention.Args(), work.view, attention.pool(), nullptr),
          cudaSuccess);
    }
    WaitForDevice();
  };
  run();
  const std::vector<T> before = attention.out().Copy();
  const int64_t rows = attention.rows(), width = attention.OutWidth();
  // Of the first request: its last token in the table, then a chain slot of its last row.
  const std::vector<int32_t> seen = attention.SlotsOf(2);
  for (const int32_t slot : {seen[179], seen.back()}) {
    std::vector<P> image = attention.pool_values().values.Copy();
    const std::vector<P> whole = image;
    std::vector<float> bad(shape.head_dim, 1.0f);
    bad[shape.head_dim / 2] = INFINITY;
    for (int head = 0; head < shape.kv_heads; ++head)
      attention.pool_values().Put(bad, attention.kLayer, 1, slot, head, &image);
    std::copy(image.begin(), image.end(), attention.pool_values().values.data());
    run();
    std::copy(whole.begin(), whole.end(), attention.pool_values().values.data());
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<int32_t> slots = attention.SlotsOf(static_cast<int>(r));
      const bool sees = std::find(slots.begin(), slots.end(), slot) != slots.end();
      const T* const out = attention.out().data() + r * width;
      if (sees) {
        for (int64_t i = 0; i < width; ++i) ASSERT_TRUE(std::isnan(dev::ToFloat(out[i]))) << r;
      } else {
        ASSERT_EQ(std::memcmp(out, before.data() + r * width, width * sizeof(T)), 0) << r;
      }
    }
  }
}

}  // namespace coppice::kernels::cuda
