// Rotary positions, the store of K and V, and attention of the CUDA backend against those of the CPU
// backend.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/rope_table.h"
#include "tests/kernels/cuda/ops_fixture.h"

namespace coppice::kernels {
namespace {

class BackendAttentionTest : public OpsFixture {};

INSTANTIATE_TEST_SUITE_P(Types, BackendAttentionTest, MatrixTypes(), TypeName);

struct Heads {
  int q, kv, dim;
};

// Two requests: one prefills `prefill` rows behind `cached` tokens, one has a forest of two
// branches behind its prefix. Then some slots are committed, and the forest is asked again.
struct AttentionPlans {
  explicit AttentionPlans(int cached, int prefill, int prefix) {
    const int blocks = (cached + prefill + prefix) / kBlockSize + 3;
    std::vector<int32_t> table(blocks);
    std::iota(table.rbegin(), table.rend(), 1);  // descending: not in the order of the pool
    const int first_blocks = (cached + prefill + kBlockSize - 1) / kBlockSize;
    const std::vector<int32_t> first(table.begin(), table.begin() + first_blocks);
    const std::vector<int32_t> second(table.begin() + first_blocks, table.end());
    const auto slot = [](const std::vector<int32_t>& of, int position) {
      return of[position / kBlockSize] * kBlockSize + position % kBlockSize;
    };
    fill = PlanOfRows(cached + prefix);
    for (int p = 0; p < cached + prefix; ++p) {
      fill.position[p] = p < cached ? p : p - cached;
      fill.slot[p] = p < cached ? slot(first, p) : slot(second, p - cached);
    }
    scratch = (blocks + 1) * kBlockSize;
    for (int p = cached; p < cached + prefill; ++p) AddRow(p, slot(first, p), {});
    step.segments.push_back({0, prefill, cached + prefill});
    AddTable(first);
    // A root, a chain of two below it, and a sibling.
    const std::vector<std::vector<int>> chains = {{5}, {5, 2}, {5, 2, 9}, {5, 0}};
    for (const std::vector<int>& chain : chains) {
      std::vector<int32_t> slots;
      for (const int node : chain) slots.push_back(scratch + node);
      AddRow(prefix + static_cast<int>(chain.size()) - 1, slots.back(), slots);
    }
    step.segments.push_back({prefill, static_cast<int32_t>(chains.size()), prefix});
    AddTable(second);
    again = step;
    again.commits = {{scratch + 5, scratch + 20}, {scratch + 2, scratch + 17}};
    for (int32_t& at : again.chain) {
      if (at == scratch + 5) at = scratch + 20;
      if (at == scratch + 2) at = scratch + 17;
    }
    blocks_needed = blocks + 4;
  }
  void AddRow(int position, int32_t slot, const std::vector<int32_t>& chain) {
    step.token.push_back(0);
    step.position.push_back(position);
    step.slot.push_back(slot);
    step.chain.insert(step.chain.end(), chain.begin(), chain.end());
    step.chain_begin.push_back(static_cast<int32_t>(step.chain.size()));
  }
  void AddTable(const std::vector<int32_t>& table) {
    step.table.insert(step.table.end(), table.begin(), table.end());
    step.table_begin.push_back(static_cast<int32_t>(step.table.size()));
  }

  StepPlan fill, step, again;
  int32_t scratch = 0;
  int64_t blocks_needed = 0;
};

// How a layer attends. rule.scale 0: 1 / sqrt(head_dim). rotary_dim < 0: the whole head.
struct Steps {
  AttentionRule rule;
  bool norms = false;
  int rotary_dim = -1;
};

// Rotated rows and what attention makes of them, before and after the commits.
std::vector<float> RunAttention(TestBackend* backend, const Heads& heads,
                                const AttentionPlans& plans, DType dtype, const Steps& of,
                                bool codes = false) {
  const int64_t width = int64_t{heads.q + 2 * heads.kv} * heads.dim;
  const DType stored = codes ? DType::kI8 : backend->StoredAs(dtype);
  const auto pool =
      (*backend)->MakeKvPool({2, heads.kv, heads.dim, plans.blocks_needed, stored}).value();
  std::shared_ptr<const RopeTable> rope;
  if (of.rotary_dim != 0) {
    const int rotary_dim = of.rotary_dim < 0 ? heads.dim : of.rotary_dim;
    rope = (*backend)->MakeRope({4096, PlainFrequencies(rotary_dim, 1e4)}).value();
  }
  const auto q_gain = (*backend)->PackGain(RandomFloats(heads.dim, 8)).value();
  const auto k_gain = (*backend)->PackGain(RandomFloats(heads.dim, 9)).value();
  HeadSteps steps = {.rope = rope.get()};
  if (of.norms) {
    steps.q_norm = {q_gain.get(), NormKind::kRms, 1e-6f};
    steps.k_norm = {k_gain.get(), NormKind::kRms, 1e-6f};
  }
  AttentionRule rule = of.rule;
  if (rule.scale == 0) rule.scale = 1 / std::sqrt(static_cast<float>(heads.dim));
  const auto put = [&](int64_t rows, uint64_t seed) {
    return backend->Put(RandomFloats(rows * width, seed), width, dtype);
  };
  if (plans.fill.rows() > 0) {
    const Tensor qkv = put(plans.fill.rows(), 1);
    RunOps(backend->get(), plans.fill, [&](Ops* ops) {
      ops->RopeAndStoreKv(0, steps, qkv, pool.get());
      ops->RopeAndStoreKv(1, steps, qkv, pool.get());
    });
  }
  const int64_t rows = plans.step.rows();
  const Tensor qkv = put(rows, 2), later = put(rows, 3);
  const Tensor out = backend->Poisoned(rows, heads.q * heads.dim, dtype);
  const Tensor again = backend->Poisoned(rows, heads.q * heads.dim, dtype);
  RunOps(backend->get(), plans.step, [&](Ops* ops) {
    ops->RopeAndStoreKv(1, steps, qkv, pool.get());
    ops->Attention(1, rule, qkv, *pool, out);
  });
  RunOps(backend->get(), plans.again, [&](Ops* ops) {
    ops->CommitKv(pool.get());
    ops->Attention(1, rule, later, *pool, again);
  });
  std::vector<float> all;
  for (const Tensor& tensor : {qkv, out, again}) {
    const std::vector<float> values = backend->Read(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_P(BackendAttentionTest, RotatedRowsAndAttention) {
  for (const Heads& heads : {Heads{1, 1, 8}, Heads{8, 2, 64}, Heads{5, 5, 8}, Heads{4, 1, 128},
                             Heads{2, 1, 80}, Heads{4, 1, 256}, Heads{70, 1, 136}}) {
    for (const auto& [cached, prefill, prefix] : std::vector<std::tuple<int, int, int>>{
             {0, 1, 1}, {0, 17, 15}, {16, 3, 64}, {33, 5, 100}}) {
      const AttentionPlans plans(cached, prefill, prefix);
      ExpectSame([&](TestBackend* b) { return RunAttention(b, heads, plans, GetParam(), {}); },
                 absl::StrCat(heads.q, "/", heads.kv, " heads of ", heads.dim, ", ", cached, " + ",
                              prefill, " and ", prefix));
    }
  }
}

TEST_P(BackendAttentionTest, RulesOfEveryKind) {
  const Steps kinds[] = {{{.scale = 0.2f, .softcap = 2, .window = 0}},
                         {{.scale = 0, .softcap = 0, .window = 20}},
                         {{.scale = 0.2f, .softcap = 3, .window = 3}},
                         {{}, /*norms=*/true},
                         {{}, /*norms=*/true, /*rotary_dim=*/4},
                         {{}, /*norms=*/false, /*rotary_dim=*/6},
                         {{.scale = 0, .softcap = 0, .window = 70}, /*norms=*/true, 0}};
  const AttentionPlans plans(70, 5, 100);
  for (const Heads& heads : {Heads{8, 2, 64}, Heads{5, 5, 8}, Heads{4, 1, 256}}) {
    for (const Steps& of : kinds) {
      ExpectSame([&](TestBackend* b) { return RunAttention(b, heads, plans, GetParam(), of); },
                 absl::StrCat(heads.q, "/", heads.kv, " heads of ", heads.dim, ", window ",
                              of.rule.window, ", rotary_dim ", of.rotary_dim));
    }
  }
}

// Where the CPU has dot products of bf16 it rounds queries and weights over codes, those of f32 too.
TEST_P(BackendAttentionTest, KvInEightBits) {
  const AttentionPlans plans(33, 5, 100);
  for (const Heads& heads :
       {Heads{8, 2, 64}, Heads{5, 5, 8}, Heads{4, 1, 128}, Heads{2, 1, 80}, Heads{4, 1, 256}}) {
    for (const Steps& of : {Steps{}, Steps{{.scale = 0.2f, .softcap = 2, .window = 20}},
                            Steps{{}, /*norms=*/true, /*rotary_dim=*/4}}) {
      ExpectSame(
          [&](TestBackend* b) {
            return RunAttention(b, heads, plans, GetParam(), of, /*codes=*/true);
          },
          absl::StrCat(heads.q, "/", heads.kv, " heads of ", heads.dim),
          GetParam() == DType::kF32 ? 100 : 1);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels
