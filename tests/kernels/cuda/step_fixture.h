// A pool with random content and the arrays of a step, where kernels can read them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plan/step_plan.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

// Every element is random. P: float, dev::bf16 or dev::f16.
template <class P>
class TestPool {
 public:
  TestPool(int layers, int kv_heads, int head_dim, int64_t blocks, uint64_t seed)
      : values(
            RandomValues<P>(size_t{2} * layers * blocks * kv_heads * kBlockSize * head_dim, seed)) {
    view.data = values.data();
    view.dtype = kTypeOf<P>;
    view.layers = layers;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    view.blocks = blocks;
  }
  // Index of the vector [head_dim], by the definition of the layout:
  // [layer][K then V][block][kv_head][kBlockSize][head_dim].
  size_t Index(int layer, int value, int32_t slot, int head) const {
    size_t index = layer;
    index = index * 2 + value;
    index = index * view.blocks + slot / kBlockSize;
    index = index * view.kv_heads + head;
    index = index * kBlockSize + slot % kBlockSize;
    return index * view.head_dim;
  }

  DeviceArray<P> values;
  DevicePool view;
};

// The arrays of a plan. The plan's vectors are copied.
class TestStep {
 public:
  explicit TestStep(const StepPlan& plan) {
    const int rows = plan.rows();
    DeviceStep step;
    step.token = Keep(plan.token);
    step.position = Keep(plan.position);
    step.slot = Keep(plan.slot);
    std::vector<int32_t> segment(rows), prefix(rows), need_rows;
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      for (int r = 0; r < plan.segments[s].rows; ++r) {
        const int row = plan.segments[s].first_row + r;
        segment[row] = static_cast<int32_t>(s);
        prefix[row] = plan.prefix_length(row);
      }
    }
    for (const RowNeed& need : plan.needs) need_rows.push_back(need.row);
    step.segment = Keep(segment);
    step.prefix_len = Keep(prefix);
    step.chain_begin = Keep(plan.chain_begin);
    step.chain = Keep(plan.chain);
    step.table_begin = Keep(plan.table_begin);
    step.table = Keep(plan.table);
    step.need_row = Keep(need_rows);
    commits_ = std::make_unique<DeviceArray<KvCopy>>(plan.commits);
    step.commits = commits_->data();
    step.rows = rows;
    step.needs = static_cast<int32_t>(plan.needs.size());
    step.commit_count = static_cast<int32_t>(plan.commits.size());
    step_ = std::make_unique<DeviceArray<DeviceStep>>(std::vector<DeviceStep>{step});
    view = {step_->data(), step.rows, step.needs};
  }
  DeviceStep& arrays() { return (*step_)[0]; }

  StepView view;

 private:
  const int32_t* Keep(const std::vector<int32_t>& values) {
    arrays_.push_back(std::make_unique<DeviceArray<int32_t>>(values));
    return arrays_.back()->data();
  }
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> arrays_;
  std::unique_ptr<DeviceArray<KvCopy>> commits_;
  std::unique_ptr<DeviceArray<DeviceStep>> step_;
};

}  // namespace coppice::kernels::cuda
