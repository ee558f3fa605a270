// Attention over random forests in a paged pool, against double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/random_forest.h"
#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {

struct AttentionShape {
  int group = 1;  // q heads of one KV head
  int kv_heads = 1;
  int head_dim = 64;
  int q_heads() const { return group * kv_heads; }
};

// Lays requests out at random places of a pool of P; T are the activations. Slots that no row sees
// hold NaN.
template <class T, class P>
class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, const std::vector<RequestSpec>& requests,
                uint64_t seed, float query_size = 2.0f)
      : rule{.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))}, shape_(shape) {
    const Forest forest = MakeForest(requests, seed);
    plan_ = forest.plan;
    pool_ = std::make_unique<TestPool<P>>(kLayers, shape.kv_heads, shape.head_dim, forest.blocks,
                                          seed + 1);
    step_ = std::make_unique<TestStep>(plan_);
    HideUnseen(0);
    const size_t width = size_t(shape.q_heads() + 2 * shape.kv_heads) * shape.head_dim;
    qkv_ = std::make_unique<DeviceArray<T>>(RandomValues<T>(rows() * width, seed + 2, query_size));
    for (int r = 0; r < rows(); ++r) {  // K and V of the row itself come from the pool
      std::fill_n(qkv_->data() + r * width + shape.q_heads() * shape.head_dim,
                  2 * shape.kv_heads * shape.head_dim, dev::FromFloat<T>(NAN));
    }
    out_ = std::make_unique<DeviceArray<T>>(rows() * OutWidth());
  }

  int rows() const { return plan_.rows(); }
  int64_t OutWidth() const { return int64_t{shape_.q_heads()} * shape_.head_dim; }
  const DeviceArray<T>& out() const { return *out_; }
  const StepView& step() const { return step_->view; }
  DeviceStep& arrays() { return step_->arrays(); }
  const StepPlan& plan() const { return plan_; }
  const DevicePool& pool() const { return pool_->view; }
  TestPool<P>& pool_values() { return *pool_; }
  DeviceArray<T>& qkv() { return *qkv_; }

  AttentionArgs Args() {
    AttentionArgs args;
    args.qkv = qkv_->data();
    args.out = out_->data();
    args.dtype = kTypeOf<T>;
    args.q_heads = shape_.q_heads();
    args.layer = kLayer;
    args.rule = rule;
    return args;
  }
  void Run() {
    Attention(step(), Args(), pool(), nullptr);
    WaitForDevice();
  }

  // Every element, and that the pool is as it was.
  void Check(const std::string& what) {
    for (int r = 0; r < rows(); ++r) {
      const std::vector<int32_t> slots = WithinWindow(SlotsOf(r), rule.window);
      for (int head = 0; head < shape_.q_heads(); ++head) {
        CheckHead(r, head, slots, what);
        if (testing::Test::HasFailure()) return;
      }
    }
    const std::vector<P> after = pool_->values.Copy();
    ASSERT_EQ(std::memcmp(after.data(), before_.data(), before_.size() * sizeof(P)), 0) << what;
  }

  std::vector<int32_t> SlotsOf(int r) const { return VisibleSlots(plan_, r); }

  static constexpr int kLayers = 2, kLayer = 1;

  // NaN in every slot that no row sees within its last `window` positions; 0: within all.
  void HideUnseen(int window) {
    std::vector<bool> seen(pool_->view.blocks * kBlockSize);
    for (int r = 0; r < rows(); ++r) {
      for (const int32_t slot : WithinWindow(SlotsOf(r), window)) seen[slot] = true;
    }
    std::vector<P> image = pool_->values.Copy();
    for (size_t slot = 0; slot < seen.size(); ++slot) {
      if (seen[slot]) continue;
      for (int plane = 0; plane < 2 * kLayers; ++plane) {
        for (int head = 0; head < shape_.kv_heads; ++head) {
          pool_->Put(std::vector<float>(shape_.head_dim, NAN), plane / 2, plane % 2,
                     static_cast<int32_t>(slot), head, &image);
        }
      }
    }
    std::copy(image.begin(), image.end(), pool_->values.data());
    before_ = std::move(image);
  }

 private:
  static std::vector<int32_t> WithinWindow(const std::vector<int32_t>& slots, int window) {
    if (window == 0 || slots.size() <= size_t(window)) return slots;
    return {slots.end() - window, slots.end()};
  }

  double ValueOf(int value, int32_t slot, int head, int d) const {
    const double exact = pool_->Value(kLayer, value, slot, head / shape_.group, d);
    return rounds_codes ? dev::ToFloat(dev::FromFloat<T>(static_cast<float>(exact))) : exact;
  }

  void CheckHead(int r, int head, const std::vector<int32_t>& slots, const std::string& what) {
    const int dim = shape_.head_dim;
    const size_t width = size_t(shape_.q_heads() + 2 * shape_.kv_heads) * dim;
    const T* query = qkv_->data() + r * width + head * dim;
    std::vector<double> weights, sum(dim, 0.0), sizes(dim, 0.0);
    for (const int32_t slot : slots) {
      double score = 0;
      for (int d = 0; d < dim; ++d) {
        score += double{dev::ToFloat(query[d])} * ValueOf(0, slot, head, d);
      }
      score *= rule.scale;
      weights.push_back(rule.softcap == 0 ? score : rule.softcap * std::tanh(score / rule.softcap));
    }
    const double max = weights.empty() ? 0.0 : *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
      const double weight = std::exp(weights[i] - max);
      total += weight;
      for (int d = 0; d < dim; ++d) {
        const double v = ValueOf(1, slots[i], head, d);
        sum[d] += weight * v;
        sizes[d] += weight * std::abs(v);
      }
    }
    for (int d = 0; d < dim; ++d) {
      const double want = slots.empty() ? 0.0 : sum[d] / total;
      const double size = slots.empty() ? 0.0 : sizes[d] / total;
      ExpectNear((*out_)[r * OutWidth() + head * dim + d], want, size, slack,
                 what + ", row " + std::to_string(r) + " head " + std::to_string(head) + " dim " +
                     std::to_string(d));
    }
  }

 public:
  double slack = 1e-5;        // of the kernel's own arithmetic, relative
  bool rounds_codes = false;  // to values of T, before they are used
  AttentionRule rule;

 private:
  AttentionShape shape_;
  StepPlan plan_;
  std::unique_ptr<TestPool<P>> pool_;
  std::unique_ptr<TestStep> step_;
  std::vector<P> before_;
  std::unique_ptr<DeviceArray<T>> qkv_, out_;
};

}  // namespace coppice::kernels::cuda
