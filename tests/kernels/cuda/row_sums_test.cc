// Log-sum-exps against sums in long double. Their bits: backend_lists_test.cc.
#include "tests/kernels/cuda/lists_fixture.h"

namespace coppice::kernels::cuda {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double KeyOf(const TestLists& lists, const SumTask& task, TokenId token) {
  const double logit = lists.Logit(task.row, token);
  double x = logit == logit ? std::min<double>(logit, std::numeric_limits<float>::max()) : -kNever;
  for (int i = task.bias_begin; i < task.bias_end; ++i) {
    if (lists.bias[i].token == token) x += lists.bias[i].bias;
  }
  return x / task.temperature;
}

void ExpectSums(const TestLists& lists, int task, const TestShard& shard) {
  const ChunkSums& got = lists.Sums(task);
  for (int c = 0; c < kLseChunks; ++c) {
    const int64_t begin = c * shard.vocab / kLseChunks, end = (c + 1) * shard.vocab / kLseChunks;
    double max = -kNever;
    long double sum = 0;
    if (begin >= shard.begin && end <= shard.end) {
      for (int64_t v = begin; v < end; ++v)
        max = std::max(max, KeyOf(lists, lists.sums[task], static_cast<TokenId>(v)));
      for (int64_t v = begin; v < end && max > -kNever; ++v)
        sum += std::exp(KeyOf(lists, lists.sums[task], static_cast<TokenId>(v)) -
                        static_cast<long double>(max));
    }
    EXPECT_EQ(got.max[c], max) << "chunk " << c << " of " << shard.vocab;
    EXPECT_NEAR(got.sum[c], static_cast<double>(sum), 1e-13 * static_cast<double>(sum))
        << "chunk " << c << " of " << shard.vocab;
  }
}

void TestSums(const TestShard& shard, float spread, bool with_bias = false) {
  TestLists lists(shard, RandomValues<float>(2 * (shard.end - shard.begin), shard.vocab, spread));
  if (with_bias) {
    lists.bias = {{3, 0, 2.5},
                  {8195, 0, -kNever},
                  {3, 0, -0.75},
                  {4, 0, 100.0},
                  {static_cast<int32_t>(shard.vocab) - 1, 0, 1e-3}};
  }
  const auto biases = static_cast<int32_t>(lists.bias.size());
  lists.sums = {{0, 0, biases, 0, 1.0}, {1, 0, biases, 0, 0.7}, {1, 0, 0, 0, 1.0}};
  lists.spare_room = 2;
  lists.Run();
  for (int task = 0; task < 3; ++task) ExpectSums(lists, task, shard);
}

TEST(CudaRowSums, AgreeWithLongDouble) {
  for (const int64_t vocab : {1, 15, 16, 33, 1000, 14336, 32000}) {
    TestSums(TestShard::Of(vocab), 10);
    TestSums(TestShard::Of(vocab), 10, /*with_bias=*/true);
  }
  TestSums(TestShard::Of(128256), 20, /*with_bias=*/true);
}

TEST(CudaRowSums, FarApart) { TestSums(TestShard::Of(500), 1e4); }

TEST(CudaRowSums, ChunksOfOtherRanksAreEmpty) {
  for (const auto& [rank, ranks] : {std::pair(0, 2), {1, 3}, {15, 16}})
    TestSums(TestShard::Of(50257, rank, ranks), 10, /*with_bias=*/true);
}

TEST(CudaRowSums, ValuesThatAreNoNumbers) {
  const TestShard shard = TestShard::Of(320);
  std::vector<float> logits = RandomValues<float>(320, 1);
  constexpr float kFloatInf = std::numeric_limits<float>::infinity();
  for (int v = 0; v < 20; ++v) logits[v] = -kFloatInf;  // a whole chunk
  logits[45] = -kFloatInf;
  logits[50] = kFloatInf;
  logits[70] = std::numeric_limits<float>::quiet_NaN();
  TestLists lists(shard, logits);
  lists.sums = {{0, 0, 0, 0, 1.0}};
  lists.Run();
  ExpectSums(lists, 0, shard);
}

// Small enough for every order of threads; more than two tiles of a chunk.
TEST(CudaRowSums, SmallRows) { TestSums(TestShard::Of(16 * 2000), 5); }

}  // namespace
}  // namespace coppice::kernels::cuda
