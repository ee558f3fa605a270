#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

void TestGather(int rows, std::vector<int> needed, int64_t words) {
  StepPlan plan;
  plan.token.assign(rows, 0);
  plan.position = plan.slot = plan.token;
  plan.chain_begin.assign(rows + 1, 0);
  for (const int row : needed) plan.needs.emplace_back().row = row;
  const TestStep step(plan);
  std::vector<uint32_t> before(rows * words);
  std::iota(before.begin(), before.end(), 7u);
  DeviceArray<uint32_t> values(before);
  GatherRows(step.view, values.data(), words * 4, nullptr);
  WaitForDevice();
  for (size_t i = 0; i < needed.size(); ++i) {
    for (int64_t c = 0; c < words; ++c) {
      ASSERT_EQ(values[i * words + c], before[needed[i] * words + c])
          << "need " << i << " of " << needed.size() << ", word " << c;
    }
  }
}

TEST(CudaGather, KeepsNeededRowsInOrder) {
  std::mt19937_64 generator(5);
  for (const int64_t words : {1, 3, 4, 36, 255, 260, 1028}) {
    for (const int rows : {1, 2, 17, 34, 67}) {
      std::vector<int> all(rows);
      std::iota(all.begin(), all.end(), 0);
      TestGather(rows, {}, words);
      TestGather(rows, {rows - 1}, words);
      TestGather(rows, all, words);
      std::vector<int> some;
      std::sample(all.begin(), all.end(), std::back_inserter(some), (rows + 1) / 2, generator);
      TestGather(rows, some, words);
      TestGather(rows, std::vector<int>(all.begin() + rows / 3, all.end()), words);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
