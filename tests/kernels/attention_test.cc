#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/attention_bf16.h"
#include "kernels/element.h"
#include "tests/kernels/attention_layout.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

// With bf16 dot products the query is rounded, in the units of the kernel, and so is every weight: to 8
// bits, so by at most 2^-8 of it.
bool RoundsToBf16(const AttentionShape& shape) {
  return cpu::AttendsWithBf16Dot({1, shape.kv_heads, shape.head_dim, 1, shape.dtype},
                                 RuleOf(shape));
}

struct Expected {
  std::vector<double> out;
  std::vector<double> error;  // that rounding of weights can make
};

Expected Reference(const AttentionShape& shape, const Context& context) {
  Expected expected;
  std::vector<float> query = TokenVector(shape, context.back(), 0);
  const int dim = shape.head_dim;
  const bool rounds = RoundsToBf16(shape);
  const auto unit = static_cast<float>(1.4426950408889634 * RuleOf(dim).scale);
  for (float& value : query) {
    if (rounds) value = Bf16ToFloat(FloatToBf16(value * unit));
  }
  for (int head = 0; head < shape.q_heads; ++head) {
    const int kv_head = head / (shape.q_heads / shape.kv_heads);
    std::vector<double> sum(dim, 0.0), magnitude(dim, 0.0);
    double total = 0.0;
    const auto length = static_cast<int>(context.size());
    const int begin = shape.window == 0 ? 0 : std::max(0, length - shape.window);
    for (const int token : absl::MakeConstSpan(context).subspan(begin)) {
      const std::vector<float> k = StoredVector(shape, token, 1);
      const std::vector<float> v = StoredVector(shape, token, 2);
      double score = 0.0;
      for (int i = 0; i < dim; ++i) score += double{query[head * dim + i]} * k[kv_head * dim + i];
      if (!rounds) score /= std::sqrt(dim);
      if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
      const double weight = rounds ? std::exp2(score) : std::exp(score);
      total += weight;
      for (int i = 0; i < dim; ++i) sum[i] += weight * v[kv_head * dim + i];
      for (int i = 0; i < dim; ++i) magnitude[i] += weight * std::abs(v[kv_head * dim + i]);
    }
    for (int i = 0; i < dim; ++i) {
      expected.out.push_back(sum[i] / total);
      expected.error.push_back(rounds ? magnitude[i] / total * 0x1p-8 : 0.0);
    }
  }
  return expected;
}

class AttentionTest : public KernelTest {
 protected:
  static void ExpectClose(const std::vector<float>& got, const Expected& want,
                          const std::string& what) {
    ASSERT_EQ(got.size(), want.out.size());
    // Scores are about 10, so weights have relative errors of about 1e-6. Values are about 2.
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want.out[i], 1e-5 + want.error[i]) << what << ", element " << i;
  }
};

TEST_P(AttentionTest, MatchesDoublePrecision) {
  for (const DType dtype : kKvTypes) {
    for (const int head_dim : {8, 20, 32, 64, 80, 128}) {
      for (const int group : {1, 2, 3, 8}) {
        const AttentionShape shape = {2 * group, 2, head_dim, dtype};
        for (const int length : {1, 15, 16, 17, 50}) {
          const Context context = Tokens(length);
          const int prefix = length * 2 / 3;
          ExpectClose(RunAlone(single_.get(), shape, context, prefix, 1), Reference(shape, context),
                      absl::StrCat(DTypeName(dtype), " head_dim ", head_dim, " group ", group,
                                   " length ", length));
        }
      }
    }
  }
}

TEST_P(AttentionTest, WindowsAndCapsMatchDoublePrecision) {
  for (const DType dtype : kKvTypes) {
    for (const int head_dim : {20, 64, 256}) {
      for (const int window : {0, 1, 16, 21}) {
        for (const float softcap : {0.0f, 3.0f}) {
          const AttentionShape shape = {4, 2, head_dim, dtype, window, softcap};
          for (const int length : {1, 17, 50}) {
            for (const int prefix : {0, length * 2 / 3, length}) {
              const Context context = Tokens(length);
              ExpectClose(
                  RunAlone(single_.get(), shape, context, prefix, 1), Reference(shape, context),
                  absl::StrCat(DTypeName(dtype), " head_dim ", head_dim, " window ", window,
                               " softcap ", softcap, " length ", length, " prefix ", prefix));
            }
          }
        }
      }
    }
  }
}

// Beams on a shared prefix together with prefill rows of another request, and the same rows alone.
TEST_P(AttentionTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  for (const DType dtype : kKvTypes) {
    for (const AttentionShape& shape :
         {AttentionShape{4, 4, 32, dtype}, AttentionShape{6, 2, 64, dtype},
          AttentionShape{3, 1, 128, dtype}, AttentionShape{3, 1, 20, dtype},
          AttentionShape{6, 2, 64, dtype, 7}, AttentionShape{4, 4, 32, dtype, 33, 5.0f}}) {
      const std::vector<Context> beams = Beams(37, {1, 5, 20, 2, 3, 30, 1, 17});
      const Context prompt = Tokens(60, 5000);
      for (Backend* backend : {single_.get(), team_.get()}) {
        AttentionLayout layout(backend, shape, 2);
        layout.AddSegment(absl::MakeConstSpan(beams[0]).first(37));
        for (const Context& beam : beams) layout.AddRow(beam, 37);
        layout.AddSegment(prompt);
        for (int n = 20; n <= 60; ++n)
          layout.AddRow(Context(prompt.begin(), prompt.begin() + n), n);
        const std::vector<float> batch = layout.Run();

        const int64_t width = shape.q_heads * shape.head_dim;
        for (int64_t r = 0; r < 8 + 41; ++r) {
          const bool beam = r < 8;
          const Context context =
              beam ? beams[r] : Context(prompt.begin(), prompt.begin() + 12 + r);
          const std::vector<float> alone = RunAlone(
              single_.get(), shape, context, beam ? 37 : static_cast<int>(context.size()), 3);
          ASSERT_EQ(std::memcmp(alone.data(), batch.data() + r * width, width * sizeof(float)), 0)
              << "row " << r << ", " << backend->description() << ", " << DTypeName(dtype);
        }
      }
    }
  }
}

// Three threads divide the rows or heads of KV heads that are left over. Every shape has enough work
// to be shared.
TEST_P(AttentionTest, BitsAreTheSameWhereUnitsAreDivided) {
  for (const DType dtype : kKvTypes) {
    for (const AttentionShape& shape :
         {AttentionShape{4, 1, 64, dtype}, AttentionShape{8, 1, 64, dtype},
          AttentionShape{6, 2, 64, dtype}, AttentionShape{4, 4, 64, dtype},
          AttentionShape{20, 5, 64, dtype}}) {
      for (const int rows : {1, 2, 7}) {
        const int prefix = 330;
        const std::vector<Context> beams = Beams(prefix, std::vector<int>(rows, 20));
        AttentionLayout layout(team_.get(), shape, 2);
        layout.AddSegment(absl::MakeConstSpan(beams[0]).first(prefix));
        for (const Context& beam : beams) layout.AddRow(beam, prefix);
        const std::vector<float> batch = layout.Run();
        const int64_t width = shape.q_heads * shape.head_dim;
        for (int r = 0; r < rows; ++r) {
          const std::vector<float> alone = RunAlone(single_.get(), shape, beams[r], prefix, 3);
          ASSERT_EQ(std::memcmp(alone.data(), batch.data() + r * width, width * sizeof(float)), 0)
              << shape.kv_heads << " KV heads, row " << r << " of " << rows << ", "
              << DTypeName(dtype);
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnWhereTheContextLies) {
  for (const DType dtype : kKvTypes) {
    for (const AttentionShape& shape :
         {AttentionShape{2, 2, 64, dtype}, AttentionShape{8, 2, 80, dtype},
          AttentionShape{2, 1, 12, dtype}, AttentionShape{2, 2, 64, dtype, 19},
          AttentionShape{8, 2, 80, dtype, 30, 5.0f}}) {
      const Context context = Tokens(53);
      const std::vector<float> in_prefix = RunAlone(single_.get(), shape, context, 53, 4);
      for (const int prefix : {0, 1, 15, 16, 17, 31, 32, 48, 52}) {
        for (const uint64_t seed : {5, 6}) {
          const std::vector<float> split = RunAlone(single_.get(), shape, context, prefix, seed);
          ASSERT_EQ(std::memcmp(split.data(), in_prefix.data(), split.size() * sizeof(float)), 0)
              << "prefix " << prefix << ", seed " << seed << ", " << DTypeName(dtype);
        }
      }
    }
  }
}

// Slots behind a row's context may hold what another request left there.
TEST_P(AttentionTest, NothingBehindTheContextCounts) {
  for (const AttentionShape& shape :
       {AttentionShape{6, 2, 64, DType::kBF16}, AttentionShape{2, 2, 128, DType::kBF16},
        AttentionShape{4, 2, 32, DType::kBF16}, AttentionShape{4, 2, 64, DType::kF32},
        AttentionShape{6, 2, 64, DType::kI8}, AttentionShape{2, 2, 128, DType::kI8},
        AttentionShape{6, 2, 32, DType::kI8}}) {
    for (const int length : {1, 2, 15, 16, 17, 31, 40}) {
      const Context context = Tokens(length);
      Context table = context;
      table.resize((length + kBlockSize - 1) / kBlockSize * kBlockSize, kNotANumber);
      for (const int rows : {1, 3}) {  // which see one token less each
        AttentionLayout layout(single_.get(), shape, 7);
        layout.AddSegment(table);
        std::vector<float> want;
        for (int r = 0; r < std::min(rows, length); ++r) {
          const Context seen(context.begin(), context.end() - r);
          layout.AddRow(seen, static_cast<int>(seen.size()));
          const std::vector<float> alone =
              RunAlone(single_.get(), shape, seen, static_cast<int>(seen.size()), 3);
          want.insert(want.end(), alone.begin(), alone.end());
        }
        const std::vector<float> got = layout.Run();
        ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
            << "head_dim " << shape.head_dim << ", length " << length << ", rows " << rows;
        for (const float value : got) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

// In 8 bits a token whose K or V is not finite makes the rows that see it NaN, and those alone.
TEST_P(AttentionTest, WhatIsNotFiniteInEightBitsReachesTheRowsThatSeeIt) {
  for (const int head_dim : {32, 64}) {
    for (const int rows : {2, 4, 12}) {
      for (const int bad : {kNotANumber, kInfiniteKey, kInfiniteValue}) {
        const AttentionShape shape = {2, 1, head_dim, DType::kI8};
        const Context context = Tokens(8 + rows);
        const auto begin = context.begin();
        Context table = context;
        table[8] = bad;  // the second row sees it, the first does not
        AttentionLayout layout(single_.get(), shape, 7);
        layout.AddSegment(table);
        for (int n = 8; n < 8 + rows; ++n) layout.AddRow(Context(begin, begin + n), n);
        const std::vector<float> got = layout.Run();
        const int64_t width = shape.q_heads * head_dim;
        const std::vector<float> first =
            RunAlone(single_.get(), shape, Context(begin, begin + 8), 8, 3);
        EXPECT_EQ(std::memcmp(got.data(), first.data(), width * sizeof(float)), 0);
        for (size_t i = width; i < got.size(); ++i)
          ASSERT_TRUE(std::isnan(got[i])) << "head_dim " << head_dim << ", " << bad << ", " << i;
      }
    }
  }
}

// The scores are far apart, so the running maximum changes from chunk to chunk. Nothing overflows.
TEST_P(AttentionTest, LargeScoresStayFinite) {
  for (const auto& [dim, dtype] : {std::pair(8, DType::kF32), std::pair(64, DType::kBF16)}) {
    const auto pool = single_->MakeKvPool({1, 1, dim, 6, dtype}).value();
    std::vector<float> row(3 * dim, 0.0f);
    for (int t = 0; t < 64; ++t) {
      std::fill_n(row.begin() + dim, dim, static_cast<float>(t) * 50.0f);  // K
      std::fill_n(row.begin() + 2 * dim, dim, static_cast<float>(t));      // V
      StepPlan plan = PlanOfRows(1);
      plan.slot = {16 + t};
      RunOps(single_.get(), plan,
             [&](Ops* ops) { ops->RopeAndStoreKv(0, {}, TensorOf(&row, 3 * dim), pool.get()); });
    }
    std::vector<float> query(3 * dim, 100.0f), out(dim);
    StepPlan plan = PlanOfRows(1);
    plan.position = {63};
    plan.table = {1, 2, 3, 4};
    plan.table_begin = {0, 4};
    for (const float sign : {1.0f, -1.0f}) {
      std::fill_n(query.begin(), dim, sign * 100.0f);
      RunOps(single_.get(), plan, [&](Ops* ops) {
        ops->Attention(0, RuleOf(dim), TensorOf(&query, 3 * dim), *pool, TensorOf(&out, dim));
      });
      for (const float value : out)
        EXPECT_EQ(value, sign > 0 ? 63.0f : 0.0f);  // the largest score takes all
    }
  }
}

COPPICE_ON_ALL_TARGETS(AttentionTest);

}  // namespace
}  // namespace coppice::kernels
