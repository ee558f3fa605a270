// A pool with random content and the arrays of a step, where kernels can read them.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "plan/step_plan.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {

// Every element is random. P: float, dev::bf16, dev::f16, or int8_t for codes with scales.
template <class P>
class TestPool {
 public:
  static constexpr bool kScaled = std::is_same_v<P, int8_t>;

  TestPool(int layers, int kv_heads, int head_dim, int64_t blocks, uint64_t seed)
      : values(RandomValues<P>(
            size_t{2} * layers * blocks * kv_heads * kBlockSize * VectorElements(head_dim), seed)) {
    view.data = values.data();
    view.dtype = kTypeOf<P>;
    view.layers = layers;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    view.blocks = blocks;
    if constexpr (kScaled) {
      std::mt19937_64 generator(seed);
      for (int plane = 0; plane < 2 * layers; ++plane) {
        for (int32_t slot = 0; slot < blocks * kBlockSize; ++slot) {
          for (int head = 0; head < kv_heads; ++head) {
            const float scale = static_cast<float>(generator() % 100 + 1) * 1e-4f;
            std::memcpy(&values[ScaleIndex(plane / 2, plane % 2, slot, head)], &scale, 4);
          }
        }
      }
    }
  }
  // Index of the vector [head_dim], by the definition of the layout:
  // [layer][K then V][block][kv_head][kBlockSize][head_dim], with scales [kBlockSize] behind codes.
  size_t Index(int layer, int value, int32_t slot, int head) const {
    return BlockIndex(layer, value, slot, head) + slot % kBlockSize * view.head_dim;
  }
  size_t ScaleIndex(int layer, int value, int32_t slot, int head) const {
    return BlockIndex(layer, value, slot, head) + kBlockSize * view.head_dim +
           slot % kBlockSize * sizeof(float);
  }
  // Elements of one block of a plane.
  size_t BlockElements() const {
    return size_t(view.kv_heads) * kBlockSize * VectorElements(view.head_dim);
  }

  // Value d of a vector.
  double Value(int layer, int value, int32_t slot, int head, int d) const {
    const double element = dev::ToFloat(values[Index(layer, value, slot, head) + d]);
    if constexpr (!kScaled) return element;
    float scale;
    std::memcpy(&scale, &values[ScaleIndex(layer, value, slot, head)], sizeof scale);
    return element * scale;
  }
  // In an image of the pool: the vector as the pool is to hold these values.
  void Put(const std::vector<float>& vector, int layer, int value, int32_t slot, int head,
           std::vector<P>* image) const {
    P* const place = &(*image)[Index(layer, value, slot, head)];
    if constexpr (kScaled) {
      float largest = 0;
      bool finite = true;
      for (const float x : vector) largest = std::max(largest, std::abs(x));
      for (const float x : vector) finite = finite && std::isfinite(x);
      const float scale = finite ? largest / 127 : NAN;
      for (size_t d = 0; d < vector.size(); ++d) {
        place[d] = scale > 0 ? static_cast<int8_t>(std::nearbyint(vector[d] / scale)) : int8_t{0};
      }
      std::memcpy(&(*image)[ScaleIndex(layer, value, slot, head)], &scale, sizeof scale);
    } else {
      for (size_t d = 0; d < vector.size(); ++d) place[d] = dev::FromFloat<P>(vector[d]);
    }
  }

  DeviceArray<P> values;
  DevicePool view;

 private:
  static size_t VectorElements(int head_dim) { return head_dim + (kScaled ? sizeof(float) : 0); }
  size_t BlockIndex(int layer, int value, int32_t slot, int head) const {
    size_t index = layer;
    index = index * 2 + value;
    index = index * view.blocks + slot / kBlockSize;
    index = index * view.kv_heads + head;
    return index * kBlockSize * VectorElements(view.head_dim);
  }
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
    step.state = Keep(plan.state);
    states_ = std::make_unique<DeviceArray<uint16_t>>(plan.states);
    step.states = states_->data();
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
  std::unique_ptr<DeviceArray<uint16_t>> states_;
  std::unique_ptr<DeviceArray<DeviceStep>> step_;
};

}  // namespace coppice::kernels::cuda
