#include "tests/kernels/cuda/attention_fixture.h"

namespace coppice::kernels::cuda {
namespace {

std::string NameOf(const AttentionShape& shape) {
  return "group " + std::to_string(shape.group) + " dim " + std::to_string(shape.head_dim);
}

// How a rule differs from that of the shape; 0: not.
struct Deviation {
  float scale = 0, softcap = 0;
  int window = 0;
};

template <class T, class P>
void TestAttention(const AttentionShape& shape, const std::vector<RequestSpec>& requests,
                   const Deviation& of = {}) {
  AttentionCase<T, P> attention(shape, requests, shape.head_dim * 31 + shape.group);
  if (of.scale != 0) attention.rule.scale = of.scale;
  attention.rule.softcap = of.softcap;
  attention.rule.window = of.window;
  attention.HideUnseen(of.window);
  attention.Run();
  attention.Check(NameOf(shape) + ", prefix " + std::to_string(requests[0].prefix) + ", window " +
                  std::to_string(of.window));
}

TEST(CudaAttention, EveryGroupAndHeadDim) {
  for (const int dim : {32, 64, 72, 80, 96, 128, 200, 256}) {
    for (const int group : {1, 4, 5, 7, 8}) {
      TestAttention<dev::bf16, dev::bf16>({group, 1, dim}, {{33, 1, {1, 3}}});
      TestAttention<dev::f16, dev::f16>({group, 1, dim}, {{33, 1, {1, 3}}});
    }
    TestAttention<float, float>({2, 2, dim}, {{33, 1, {1, 3}}});
  }
}

TEST(CudaAttention, CodesOfEveryHeadDim) {
  for (const int dim : {8, 32, 64, 72, 80, 96, 128, 200, 256}) {
    TestAttention<dev::bf16, int8_t>({4, 2, dim}, {{33, 1, {1, 3}}});
    TestAttention<dev::f16, int8_t>({1, 1, dim}, {{33, 1, {1, 3}}});
    TestAttention<float, int8_t>({3, 2, dim}, {{129, 2, {1, 40}}, {7, 7, {}}});
  }
}

TEST(CudaAttention, MixedTypes) {
  TestAttention<float, dev::bf16>({3, 2, 64}, {{40, 2, {1, 5}}});
  TestAttention<dev::bf16, float>({3, 2, 80}, {{40, 2, {1, 5}}});
}

TEST(CudaAttention, EveryPrefixLength) {
  for (const int prefix : {0, 1, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128, 129, 1023}) {
    TestAttention<dev::bf16, dev::bf16>({2, 2, 64}, {{prefix, std::min(prefix, 1), {1, 2, 17}}});
  }
  TestAttention<dev::bf16, dev::bf16>({2, 1, 64}, {{4097, 1, {1, 40}}});
}

TEST(CudaAttention, LongChains) {
  TestAttention<dev::bf16, dev::bf16>({2, 1, 64}, {{7, 0, {200, 1, 31, 32, 33, 256}}});
}

TEST(CudaAttention, ScoresAreScaledAndCapped) {
  for (const float softcap : {0.0f, 0.5f, 30.0f}) {
    TestAttention<float, float>({2, 1, 64}, {{70, 2, {1, 5}}}, {0.3f, softcap, 0});
    TestAttention<dev::bf16, dev::bf16>({2, 2, 256}, {{70, 2, {1, 5}}}, {0.0625f, softcap, 40});
    TestAttention<float, int8_t>({2, 1, 64}, {{70, 2, {1, 5}}}, {0.3f, softcap, 40});
  }
}

// Windows that end within a chunk, at its end, within a chain, and before the first position; what
// lies before the windows of all rows is not read.
TEST(CudaAttention, RowsSeeTheirWindow) {
  for (const int window : {1, 2, 31, 32, 33, 64, 90, 129, 200, 5000}) {
    TestAttention<float, float>({2, 1, 32}, {{130, 3, {1, 5, 40}}, {7, 7, {}}}, {0, 0, window});
    TestAttention<dev::bf16, dev::bf16>({2, 2, 64}, {{200, 1, {2, 1}}}, {0, 0, window});
    TestAttention<float, int8_t>({2, 1, 40}, {{130, 3, {1, 5, 40}}, {7, 7, {}}}, {0, 0, window});
  }
}

TEST(CudaAttention, MixedRequests) {
  std::vector<RequestSpec> requests = {{65, 0, RandomChains(33, 5, 1)}, {17, 17, {}}};
  TestAttention<dev::bf16, dev::bf16>({4, 2, 64}, requests);
  requests = {{1, 1, {}},          {40, 0, {1, 1, 1, 1}}, {0, 0, RandomChains(31, 4, 2)},
              {64, 3, {2, 2}},     {16, 0, {1}},          {0, 0, {9}},
              {100, 20, {1, 2, 3}}};
  TestAttention<float, float>({1, 2, 40}, requests);
}

// A padded row has neither a prefix nor a chain.
TEST(CudaAttention, RowThatSeesNothingGivesZero) {
  AttentionCase<dev::bf16, dev::bf16> attention({2, 1, 64}, {{20, 0, {1, 1}}}, 3);
  const DeviceArray<int32_t> nothing(std::vector<int32_t>(3, 0));
  attention.arrays().prefix_len = nothing.data();
  attention.arrays().chain_begin = nothing.data();
  Attention(attention.step(), attention.Args(), attention.pool(), nullptr);
  WaitForDevice();
  for (size_t i = 0; i < attention.out().size(); ++i) {
    ASSERT_EQ(dev::ToFloat(attention.out()[i]), 0.0f);
  }
}

// Scores of the size of 1e5, rising and falling along the positions: the running maximum moves and
// nothing overflows.
TEST(CudaAttention, LargeScoresStayFinite) {
  AttentionCase<float, float> attention({1, 1, 32}, {{300, 0, {1, 40}}}, 4, 1e5f);
  attention.Run();
  attention.slack = 0.05;  // scores of 1e5 have rounding errors of 1e-2
  attention.Check("large scores");
}

// The first rows of a batch and of a batch with more rows and other requests are bit for bit equal,
// wherever their context lies.
TEST(CudaAttention, BitsDependOnTheRowAlone) {
  const AttentionShape shape = {2, 2, 80};
  AttentionCase<dev::bf16, dev::bf16> first(shape, {{50, 0, {4}}, {20, 1, {1}}}, 5);
  AttentionCase<dev::bf16, dev::bf16> second(shape, {{54, 1, {}}, {70, 2, {3, 3}}}, 6);
  const std::vector<int32_t> from = first.SlotsOf(0), to = second.SlotsOf(0);
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    for (int value = 0; value < 2; ++value) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const int layer = first.kLayer;
        std::copy_n(first.pool_values().values.data() +
                        first.pool_values().Index(layer, value, from[i], head),
                    shape.head_dim,
                    second.pool_values().values.data() +
                        second.pool_values().Index(layer, value, to[i], head));
      }
    }
  }
  std::copy_n(first.qkv().data(), first.OutWidth(), second.qkv().data());
  first.Run();
  second.Run();
  EXPECT_EQ(
      std::memcmp(first.out().data(), second.out().data(), first.OutWidth() * sizeof(dev::bf16)),
      0);
}

}  // namespace
}  // namespace coppice::kernels::cuda
