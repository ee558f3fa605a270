#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

void TestGather(int rows, std::vector<int> needed, int64_t words, int64_t more_words = 0) {
  StepPlan plan;
  plan.token.assign(rows, 0);
  plan.position = plan.slot = plan.token;
  plan.chain_begin.assign(rows + 1, 0);
  for (const int row : needed) plan.needs.emplace_back().row = row;
  const TestStep step(plan);
  std::vector<uint32_t> before(rows * words), more_before(rows * more_words);
  std::iota(before.begin(), before.end(), 7u);
  std::iota(more_before.begin(), more_before.end(), 0x70000000u);
  DeviceArray<uint32_t> values(before), more(more_before);
  GatherArgs args;
  args.of[0] = {values.data(), words * 4};
  if (more_words > 0) args.of[1] = {more.data(), more_words * 4};
  GatherRows(step.view, args, nullptr);
  WaitForDevice();
  for (size_t i = 0; i < needed.size(); ++i) {
    for (int64_t c = 0; c < words; ++c) {
      ASSERT_EQ(values[i * words + c], before[needed[i] * words + c])
          << "need " << i << " of " << needed.size() << ", word " << c;
    }
    for (int64_t c = 0; c < more_words; ++c) {
      ASSERT_EQ(more[i * more_words + c], more_before[needed[i] * more_words + c])
          << "second matrix, need " << i << " of " << needed.size() << ", word " << c;
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

// Rows of 16 bytes and others, the first or the second the longer one.
TEST(CudaGather, TwoMatricesAtOnce) {
  for (const auto& [words, more] : std::vector<std::pair<int64_t, int64_t>>{
           {1028, 4}, {4, 1028}, {516, 512}, {3, 260}, {64, 1}}) {
    TestGather(17, {1, 2, 9, 16}, words, more);
    TestGather(5, {0, 1, 2, 3, 4}, words, more);
    TestGather(3, {}, words, more);
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
