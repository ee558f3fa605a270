#include "tests/kernels/attention_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/check.h"
#include "kernels/element.h"

namespace coppice::kernels {

AttentionRule RuleOf(int head_dim) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
}
AttentionRule RuleOf(const AttentionShape& shape) {
  AttentionRule rule = RuleOf(shape.head_dim);
  rule.window = shape.window;
  rule.softcap = shape.softcap;
  return rule;
}

std::vector<float> TokenVector(const AttentionShape& shape, int token, int which) {
  const int heads = which == 0 ? shape.q_heads : shape.kv_heads;
  if (token == kNotANumber) return std::vector<float>(heads * shape.head_dim, NAN);
  std::vector<float> values = RandomFloats(int64_t{heads} * shape.head_dim, token * 3 + which);
  for (float& value : values) value *= 2.0f;
  if (which == (token == kInfiniteKey ? 1 : token == kInfiniteValue ? 2 : -1)) {
    for (int head = 0; head < heads; ++head)
      values[head * shape.head_dim + 5] = -std::numeric_limits<float>::infinity();
  }
  return values;
}

std::vector<float> StoredVector(const AttentionShape& shape, int token, int which) {
  std::vector<float> values = TokenVector(shape, token, which);
  if (shape.dtype == DType::kBF16) {
    for (float& value : values) value = Bf16ToFloat(FloatToBf16(value));
  }
  if (shape.dtype != DType::kI8) return values;
  for (int head = 0; head < shape.kv_heads; ++head) {
    const auto vector = absl::MakeSpan(values).subspan(head * shape.head_dim, shape.head_dim);
    float largest = 0;
    for (const float value : vector) largest = std::max(largest, std::abs(value));
    const float scale = largest / 127;
    for (float& value : vector) value = scale * std::nearbyint(value / scale);
  }
  return values;
}

Context Tokens(int count, int first) {
  Context context(count);
  std::iota(context.begin(), context.end(), first);
  return context;
}

std::vector<Context> Beams(int prefix, const std::vector<int>& chains) {
  std::vector<Context> rows;
  for (size_t r = 0; r < chains.size(); ++r) {
    Context row = Tokens(prefix);
    const Context chain = Tokens(chains[r], 1000 + 100 * static_cast<int>(r));
    row.insert(row.end(), chain.begin(), chain.end());
    rows.push_back(row);
  }
  return rows;
}

AttentionLayout::AttentionLayout(Backend* backend, const AttentionShape& shape, uint64_t seed,
                                 bool paged)
    : backend_(backend), shape_(shape), paged_(paged), blocks_(400) {
  KvPoolShape pool = {2, shape.kv_heads, shape.head_dim, blocks_, shape.dtype};
  if (paged) {
    pool.layers = 1;
    pool.blocks = 2 * blocks_;
    pool.places = {{0, 0}, {1, 0}};
  }
  pool_ = backend->MakeKvPool(pool).value();
  std::mt19937_64 generator(seed);
  free_blocks_.resize(blocks_ / 2 - 1);
  std::iota(free_blocks_.begin(), free_blocks_.end(), 1);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), generator);
  free_slots_.resize(blocks_ / 2 * kBlockSize);
  std::iota(free_slots_.begin(), free_slots_.end(), blocks_ / 2 * kBlockSize);
  std::shuffle(free_slots_.begin(), free_slots_.end(), generator);
}

void AttentionLayout::AddSegment(absl::Span<const int> tokens, int shared, int with) {
  for (int i = 0; i < shared; ++i)
    plan_.table.push_back(int32_t{plan_.table[plan_.table_begin[with] + i]});
  for (size_t i = shared * kBlockSize; i < tokens.size(); ++i) {
    if (i % kBlockSize == 0) {
      plan_.table.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
    Store(tokens[i], plan_.table.back() * kBlockSize + static_cast<int32_t>(i % kBlockSize));
  }
  plan_.table_begin.push_back(static_cast<int32_t>(plan_.table.size()));
  plan_.segments.push_back({plan_.rows(), 0, static_cast<int32_t>(tokens.size())});
}

void AttentionLayout::AddRow(const Context& context, int prefix_len) {
  for (size_t i = prefix_len; i < context.size(); ++i) {
    Store(context[i], free_slots_.back());
    plan_.chain.push_back(free_slots_.back());
    free_slots_.pop_back();
  }
  plan_.token.push_back(0);
  plan_.position.push_back(static_cast<int32_t>(context.size()) - 1);
  plan_.slot.push_back(0);
  plan_.chain_begin.push_back(static_cast<int32_t>(plan_.chain.size()));
  ++plan_.segments.back().rows;
  const std::vector<float> query = TokenVector(shape_, context.back(), 0);
  queries_.insert(queries_.end(), query.begin(), query.end());
  queries_.resize(queries_.size() + 2 * shape_.kv_heads * shape_.head_dim);
}

std::vector<float> AttentionLayout::Run() {
  const int64_t width = shape_.q_heads * shape_.head_dim;
  std::vector<float> out(plan_.rows() * width, NAN);
  if (paged_) plan_.groups = {{plan_.slot, plan_.chain, plan_.table}, SecondGroup(plan_)};
  RunOps(backend_, plan_, [&](Ops* ops) {
    ops->Attention(/*layer=*/1, RuleOf(shape_), TensorOf(&queries_, Width()), *pool_,
                   TensorOf(&out, width));
  });
  return out;
}

void AttentionLayout::Store(int token, int32_t slot) {
  std::vector<float> row(shape_.q_heads * shape_.head_dim);
  for (const int which : {1, 2}) {
    const std::vector<float> values = TokenVector(shape_, token, which);
    row.insert(row.end(), values.begin(), values.end());
  }
  StepPlan plan = PlanOfRows(1);
  plan.slot = {slot};
  if (paged_) plan.groups = {{plan.slot, {}, {}}, SecondGroup(plan)};
  RunOps(backend_, plan, [&](Ops* ops) {
    ops->RopeAndStoreKv(/*layer=*/1, {}, TensorOf(&row, Width()), pool_.get());
  });
}

// Block b has page 2 blocks - b.
GroupSlots AttentionLayout::SecondGroup(const StepPlan& plan) const {
  const auto page_of = [&](int32_t block) {
    return block == 0 ? 0 : static_cast<int32_t>(2 * blocks_ - block);
  };
  const auto slot_of = [&](int32_t slot) {
    return page_of(slot / kBlockSize) * kBlockSize + slot % kBlockSize;
  };
  GroupSlots slots;
  for (const int32_t slot : plan.slot) slots.slot.push_back(slot_of(slot));
  for (const int32_t slot : plan.chain) slots.chain.push_back(slot_of(slot));
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    int32_t shortest = INT32_MAX;
    for (int r = 0; r < plan.segments[s].rows; ++r)
      shortest = std::min(shortest, plan.position[plan.segments[s].first_row + r] + 1);
    const int32_t begin = shape_.window == 0 ? 0 : shortest - shape_.window;
    for (int32_t i = plan.table_begin[s]; i < plan.table_begin[s + 1]; ++i) {
      const bool seen = (i - plan.table_begin[s] + 1) * kBlockSize > begin;
      slots.table.push_back(seen ? page_of(plan.table[i]) : 0);
    }
  }
  return slots;
}

std::vector<float> RunAlone(Backend* backend, const AttentionShape& shape, const Context& context,
                            int prefix_len, uint64_t seed) {
  AttentionLayout layout(backend, shape, seed);
  layout.AddSegment(absl::MakeConstSpan(context).first(prefix_len));
  layout.AddRow(context, prefix_len);
  return layout.Run();
}

}  // namespace coppice::kernels
