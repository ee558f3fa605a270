#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gain.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/parallel_rows.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/scatter_logits.h"
#include "kernels/element.h"
#include "kernels/rope_table.h"
#include "plan/prefix_order.h"

namespace coppice::kernels::cpu {
namespace {

int QHeads(const Tensor& qkv, const KvPoolShape& shape) {
  return static_cast<int>(qkv.columns / shape.head_dim) - 2 * shape.kv_heads;
}

}  // namespace

CpuOps::CpuOps(ThreadTeam* team, comm::Communicator* communicator, HostStepRows* step_rows)
    : team_(team), communicator_(communicator), step_rows_(step_rows) {}

void CpuOps::Begin(const StepPlan& plan) {
  plan_ = &plan;
  rows_ = plan.rows();
  gathered_ = false;
  status_ = absl::OkStatus();
  norm_ = {};
  row_table_.resize(rows_);
  prefix_len_.resize(rows_);
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      row_table_[row] = static_cast<int32_t>(s);
      prefix_len_[row] = plan.prefix_length(row);
    }
  }
  const PrefixOrder by_prefix = OrderByPrefix(plan);
  order_.clear(), common_.clear();
  for (size_t i = 0; i < by_prefix.segments.size(); ++i) {
    const int32_t s = by_prefix.segments[i];
    const Segment& segment = plan.segments[s];
    for (int row = 0; row < segment.rows; ++row) {
      order_.push_back(segment.first_row + row);
      common_.push_back(row == 0 ? by_prefix.common[i]
                                 : plan.table_begin[s + 1] - plan.table_begin[s]);
    }
  }
}

void CpuOps::Settle() {
  if (norm_.x == nullptr) return;
  const WaitingNorm norm = std::exchange(norm_, {});
  NormRows(norm.norm, norm.x, rows_, norm.columns, norm.out);
}

float* CpuOps::Rows(const Tensor& tensor, int64_t columns) {
  if (tensor.data == norm_.x || tensor.data == norm_.out) Settle();
  COPPICE_CHECK_MSG(
      tensor.dtype == DType::kF32 && tensor.rows >= rows_ && tensor.columns == columns,
      absl::StrCat("a tensor ", DTypeName(tensor.dtype), " [", tensor.rows, ", ", tensor.columns,
                   "] for ", rows_, " rows of ", columns));
  return static_cast<float*>(tensor.data);
}

void CpuOps::CommitKv(KvPool* pool) {
  if (!status_.ok() || plan_->commits.empty()) return;
  CopyKv(plan_->commits, static_cast<CpuKvPool*>(pool));
}

void CpuOps::Embed(const Weight& w, int64_t first_row, float scale, Tensor x) {
  if (!status_.ok()) return;
  float* const values = Rows(x, w.columns);
  cpu::Embed(static_cast<const CpuMatrix&>(w), first_row, plan_->token, values);
  if (scale != 1.0f) Scale(values, scale, rows_ * w.columns);
}

void CpuOps::AddPositions(const Weight& w, int offset, Tensor x) {
  if (!status_.ok()) return;
  places_.assign(plan_->position.begin(), plan_->position.end());
  for (TokenId& place : places_) place += offset;
  positions_.resize(rows_ * w.columns);
  cpu::Embed(static_cast<const CpuMatrix&>(w), /*first_row=*/0, places_, positions_.data());
  AddScaled(Rows(x, w.columns), positions_.data(), 1.0f, rows_ * w.columns);
}

void CpuOps::AddNorm(Tensor x, const Addend& addend, const Norm& norm, Tensor out) {
  if (!status_.ok()) return;
  Settle();
  const int64_t n = x.columns;
  const NormArgs args = ArgsOf(norm);
  float* values = Rows(x, n);
  float* added = addend.empty() ? nullptr : Rows(addend.values, n);
  float* normed = Rows(out, n);
  COPPICE_CHECK(norm.empty() || norm.gain->columns == n);
  if (added == nullptr && args.gain != nullptr && normed != values && PreparesOwnRows(rows_, n)) {
    norm_ = {values, args, n, normed};
    return;
  }
  const NormArgs before = ArgsOf(addend.norm);
  ForRows(rows_, n, team_, [&](int64_t begin, int64_t end) {
    float* first = values + begin * n;
    if (added != nullptr) {
      float* const sum = added + begin * n;
      NormRows(before, sum, end - begin, n, sum);
      AddScaled(first, sum, addend.scale, (end - begin) * n);
    }
    NormRows(args, first, end - begin, n, normed + begin * n);
  });
}

void CpuOps::MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  if (!status_.ok()) return;
  const auto& matrix = static_cast<const CpuMatrix&>(w);
  MatMulArgs args;
  args.w = &matrix;
  args.rows = rows_;
  if (norm_.x != nullptr && x.data == norm_.out && y.data != norm_.x) {
    COPPICE_CHECK(norm_.columns == w.columns);
    const WaitingNorm norm = std::exchange(norm_, {});
    args.x = norm.x;
    args.norm = norm.norm;
  } else {
    args.x = Rows(x, w.columns);
  }
  args.y = Rows(y, w.rows);
  args.bias = matrix.bias.empty() ? nullptr : matrix.bias.data();
  args.accumulate = accumulate;
  cpu::MatMul(args, team_, &matmul_scratch_);
}

void CpuOps::RopeAndStoreKv(int layer, const HeadSteps& steps, Tensor qkv, KvPool* pool) {
  if (!status_.ok()) return;
  const KvPlace place = pool->shape.place(layer);
  const RopeAndStoreArgs args = {Rows(qkv, qkv.columns),
                                 plan_->rotation(),
                                 plan_->slot_of(place.group),
                                 QHeads(qkv, pool->shape),
                                 ArgsOf(steps.q_norm),
                                 ArgsOf(steps.k_norm),
                                 static_cast<const HostRopeTable*>(steps.rope),
                                 place.layer,
                                 static_cast<CpuKvPool*>(pool)};
  ForRows(rows_, 2 * qkv.columns, team_,
          [&](int64_t begin, int64_t end) { cpu::RopeAndStoreKv(args, begin, end); });
}

void CpuOps::Attention(int layer, const AttentionRule& rule, Tensor qkv, const KvPool& pool,
                       Tensor out) {
  if (!status_.ok()) return;
  const KvPlace place = pool.shape.place(layer);
  const AttentionContext context = {row_table_,
                                    prefix_len_,
                                    plan_->chain_begin,
                                    plan_->chain_of(place.group),
                                    plan_->table_begin,
                                    plan_->table_of(place.group),
                                    order_,
                                    common_};
  const int q_heads = QHeads(qkv, pool.shape);
  cpu::Attention({Rows(qkv, qkv.columns), q_heads, rule, &context, place.layer,
                  static_cast<const CpuKvPool*>(&pool), Rows(out, q_heads * pool.shape.head_dim)},
                 team_);
}

void CpuOps::Activate(Activation f, Tensor in, Tensor out) {
  if (!status_.ok()) return;
  const int64_t n = out.columns;
  const bool gated = in.columns != n;
  const int64_t width = gated ? 2 * n : n;
  const float* input = Rows(in, width);
  float* output = Rows(out, n);
  ForRows(rows_, 8 * width, team_, [&](int64_t begin, int64_t end) {
    cpu::Activate(f, gated, input + begin * width, end - begin, n, output + begin * n);
  });
}

void CpuOps::MixExperts(const Experts& experts, Tensor x, Tensor out) {
  if (!status_.ok()) return;
  const int64_t d = experts.router->columns;
  cpu::MixExperts(experts, Rows(x, d), rows_, Rows(out, d), team_, &matmul_scratch_,
                  &expert_scratch_);
}

void CpuOps::SoftCap(Tensor x, float cap) {
  if (!status_.ok()) return;
  float* const values = Rows(x, x.columns);
  ForRows(rows_, 16 * x.columns, team_, [&](int64_t begin, int64_t end) {
    cpu::SoftCap(values + begin * x.columns, cap, (end - begin) * x.columns);
  });
}

void CpuOps::StoreStates(Tensor x, KvPool* pool) {
  if (!status_.ok()) return;
  const auto& kv = *static_cast<const CpuKvPool*>(pool);
  const int64_t n = pool->shape.state_columns;
  const float* const values = Rows(x, n);
  ForRows(rows_, n, team_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = gathered_ ? plan_->needs[r].row : r;
      uint16_t* const state = kv.State(plan_->slot[row]);
      for (int64_t c = 0; c < n; ++c) state[c] = FloatToBf16(values[r * n + c]);
    }
  });
}

void CpuOps::LoadStates(const KvPool& pool, Tensor x) {
  if (!status_.ok()) return;
  const auto& kv = static_cast<const CpuKvPool&>(pool);
  const int64_t n = pool.shape.state_columns;
  float* const values = Rows(x, n);
  ForRows(rows_, n, team_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int32_t given = plan_->state[r];
      const uint16_t* const state = given >= 0
                                        ? plan_->states.data() + given * n
                                        : kv.State(plan_->chain[plan_->chain_begin[r + 1] - 2]);
      for (int64_t c = 0; c < n; ++c) values[r * n + c] = Bf16ToFloat(state[c]);
    }
  });
}

void CpuOps::PutStates(Tensor x) {
  if (!status_.ok()) return;
  const int64_t n = x.columns;
  float* const values = Rows(x, n);
  ForRows(rows_, n, team_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (plan_->state[r] < 0) continue;
      const uint16_t* const state = plan_->states.data() + plan_->state[r] * n;
      for (int64_t c = 0; c < n; ++c) values[r * n + c] = Bf16ToFloat(state[c]);
    }
  });
}

void CpuOps::NormPair(Tensor a, const Norm& of_a, Tensor b, const Norm& of_b, Tensor out) {
  if (!status_.ok()) return;
  const int64_t n = a.columns, m = b.columns;
  const NormArgs first = ArgsOf(of_a), second = ArgsOf(of_b);
  const float* const left = Rows(a, n);
  const float* const right = Rows(b, m);
  float* const pair = Rows(out, n + m);
  ForRows(rows_, n + m, team_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      NormRows(first, left + r * n, 1, n, pair + r * (n + m));
      NormRows(second, right + r * m, 1, m, pair + r * (n + m) + n);
    }
  });
}

// Needs are in ascending order of row, so no row is overwritten before it has moved.
void CpuOps::GatherRows(absl::Span<const Tensor> tensors) {
  if (!status_.ok()) return;
  Settle();  // for the rows so far
  for (const Tensor& tensor : tensors) {
    const int64_t width = tensor.columns;
    float* values = Rows(tensor, width);
    for (size_t i = 0; i < plan_->needs.size(); ++i) {
      const auto row = static_cast<size_t>(plan_->needs[i].row);
      if (row != i) std::copy_n(values + row * width, width, values + i * width);
    }
  }
  rows_ = static_cast<int64_t>(plan_->needs.size());
  gathered_ = true;
}

void CpuOps::AllReduce(Tensor x) {
  if (!status_.ok() || communicator_->size() == 1) return;
  const auto count = static_cast<size_t>(rows_ * x.columns);
  status_ = communicator_->AllReduceSum({Rows(x, x.columns), count});
}

void CpuOps::Scatter(const Weight& w, Tensor kept, Tensor wide) {
  if (!status_.ok()) return;
  const auto& scatter = static_cast<const CpuScatter&>(w);
  const float* input = Rows(kept, w.columns);
  float* output = Rows(wide, w.rows);
  ForRows(rows_, w.rows + w.columns, team_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      scatter.ScatterRow(input + r * w.columns, output + r * w.rows);
  });
}

void CpuOps::Select(Tensor logits, int64_t first_token, int64_t vocab) {
  if (!status_.ok()) return;
  status_ = step_rows_->Select(*plan_, Rows(logits, logits.columns), first_token, vocab);
}

}  // namespace coppice::kernels::cpu
