#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

// Copies between disjoint random slots; everything else keeps its bits. state_columns: 0: without
// states.
template <class P>
void TestCommit(int layers, int kv_heads, int head_dim, int copies, int state_columns = 0) {
  constexpr int kBlocks = 9;
  TestPool<P> pool(layers, kv_heads, head_dim, kBlocks, head_dim + copies);
  std::vector<int32_t> slots((kBlocks - 1) * kBlockSize);
  std::iota(slots.begin(), slots.end(), kBlockSize);
  std::shuffle(slots.begin(), slots.end(), std::mt19937_64(copies));
  StepPlan plan;
  for (int i = 0; i < copies; ++i) plan.commits.push_back({slots[2 * i], slots[2 * i + 1]});
  std::vector<P> want = pool.values.Copy();
  for (int layer = 0; layer < layers; ++layer) {
    for (int value = 0; value < 2; ++value) {
      for (int head = 0; head < kv_heads; ++head) {
        for (const KvCopy& copy : plan.commits) {
          std::copy_n(&want[pool.Index(layer, value, copy.source, head)], head_dim,
                      &want[pool.Index(layer, value, copy.destination, head)]);
          if (!pool.kScaled) continue;
          std::copy_n(&want[pool.ScaleIndex(layer, value, copy.source, head)], sizeof(float),
                      &want[pool.ScaleIndex(layer, value, copy.destination, head)]);
        }
      }
    }
  }
  DeviceArray<uint16_t> states(kBlocks * kBlockSize * state_columns);
  for (size_t i = 0; i < states.size(); ++i) states[i] = static_cast<uint16_t>(i * 7);
  std::vector<uint16_t> want_states = states.Copy();
  for (const KvCopy& copy : plan.commits) {
    std::copy_n(&want_states[copy.source * state_columns], state_columns,
                &want_states[copy.destination * state_columns]);
  }
  const TestStep step(plan);
  CommitKv(step.view, pool.view, {states.data(), state_columns}, nullptr);
  WaitForDevice();
  ASSERT_EQ(states.Copy(), want_states) << state_columns << " columns, " << copies;
  ASSERT_EQ(std::memcmp(pool.values.data(), want.data(), want.size() * sizeof(P)), 0)
      << layers << " layers, " << kv_heads << " heads, dim " << head_dim << ", " << copies;
}

TEST(CudaCommit, CopiesAllLayersAndKeepsTheRest) {
  for (const int head_dim : {8, 64, 80, 96, 128, 256}) {
    for (const int kv_heads : {1, 3, 8}) {
      for (const int copies : {0, 1, 5, 33}) {
        TestCommit<float>(2, kv_heads, head_dim, copies);
        TestCommit<dev::bf16>(3, kv_heads, head_dim, copies);
        TestCommit<dev::f16>(1, kv_heads, head_dim, copies);
        TestCommit<int8_t>(2, kv_heads, head_dim, copies);
      }
    }
  }
}

TEST(CudaCommit, StatesGoAlong) {
  for (const int columns : {8, 64, 576, 4096}) {
    for (const int copies : {1, 5, 33}) {
      TestCommit<float>(1, 2, 16, copies, columns);
      TestCommit<int8_t>(2, 1, 64, copies, columns);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
