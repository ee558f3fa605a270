#include <cmath>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

template <class T>
void TestAddNorm(int64_t rows, int64_t columns, bool with_addend) {
  const std::string shape = testing::PrintToString(std::pair(rows, columns));
  const uint64_t seed = rows * 10007 + columns * 2 + with_addend;
  const std::vector<float> before = RandomValues<float>(rows * columns, seed);
  DeviceArray<float> x(before);
  DeviceArray<float> addend(RandomValues<float>(rows * columns, seed + 1));
  DeviceArray<float> gain(RandomValues<float>(columns, seed + 2));
  DeviceArray<T> out(rows * columns);
  AddNormArgs args;
  args.x = x.data();
  args.addend = with_addend ? addend.data() : nullptr;
  args.norm.gain = gain.data();
  args.norm.epsilon = 1e-5f;
  args.out = out.data();
  args.dtype = kTypeOf<T>;
  args.rows = rows;
  args.columns = columns;
  AddNorm(args, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      const float sum = with_addend ? before[i] + addend[i] : before[i];
      ASSERT_EQ(x[i], sum) << shape << " row " << r << " column " << c;
      squares += double{sum} * sum;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(columns) + 1e-5);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c;
      const double want = double{x[i]} * scale * gain[c];
      ExpectNear(out[i], want, std::abs(want), 1e-5, shape);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CudaNorm, AddsAndNormalizes) {
  for (const int64_t columns : {1, 7, 64, 66, 768, 1028, 2048}) {
    for (const int64_t rows : {1, 5, 34}) {
      for (const bool with_addend : {false, true}) {
        TestAddNorm<float>(rows, columns, with_addend);
        TestAddNorm<dev::bf16>(rows, columns, with_addend);
        TestAddNorm<dev::f16>(rows, columns, with_addend);
      }
    }
  }
}

TEST(CudaNorm, ManyRowsAndWideRows) {
  TestAddNorm<dev::bf16>(257, 64, true);
  TestAddNorm<dev::bf16>(2, 4096, true);
  TestAddNorm<float>(1, 5120, true);
}

// Longer than what the threads hold in registers: 8 packs of 4 columns each, or of one.
TEST(CudaNorm, RowsThatAreNotHeld) {
  for (const int64_t columns : {8192, 8196, 9300, 16500, 2047, 2049, 4359}) {
    TestAddNorm<dev::bf16>(2, columns, true);
    TestAddNorm<float>(1, columns, false);
  }
}

TEST(CudaNorm, NoRows) { TestAddNorm<float>(0, 64, true); }

TEST(CudaNorm, ZeroRowStaysZero) {
  DeviceArray<float> x(std::vector<float>(96, 0.0f));
  DeviceArray<float> gain(RandomValues<float>(96, 1));
  DeviceArray<float> out(96);
  AddNormArgs args;
  args.x = x.data();
  args.norm.gain = gain.data();
  args.norm.epsilon = 1e-6f;
  args.out = out.data();
  args.dtype = DType::kF32;
  args.rows = 1;
  args.columns = 96;
  AddNorm(args, nullptr);
  WaitForDevice();
  for (int i = 0; i < 96; ++i) ASSERT_EQ(out[i], 0.0f);
}

// A norm of the test: none, or with a gain of random values.
struct TestNorm {
  bool present = false;
  NormKind kind = NormKind::kRms;
  bool with_bias = false;
};
constexpr TestNorm kNorms[] = {{},
                               {true, NormKind::kRms, false},
                               {true, NormKind::kRms, true},
                               {true, NormKind::kLayer, false},
                               {true, NormKind::kLayer, true}};

class NormValues {
 public:
  NormValues(const TestNorm& norm, int64_t columns, uint64_t seed)
      : norm_(norm),
        gain_(RandomValues<float>(columns, seed)),
        bias_(RandomValues<float>(columns, seed + 1)) {}

  NormArgs Args() const {
    if (!norm_.present) return {};
    return {gain_.data(), norm_.with_bias ? bias_.data() : nullptr, norm_.kind, 1e-5f};
  }
  std::vector<double> Normed(const std::vector<double>& values) const {
    if (!norm_.present) return values;
    const auto n = static_cast<double>(values.size());
    double mean = 0, variance = 0;
    for (const double value : values) mean += norm_.kind == NormKind::kLayer ? value / n : 0;
    for (const double value : values) variance += (value - mean) * (value - mean) / n;
    std::vector<double> normed;
    for (size_t c = 0; c < values.size(); ++c) {
      normed.push_back((values[c] - mean) / std::sqrt(variance + 1e-5) * gain_[c] +
                       (norm_.with_bias ? bias_[c] : 0.0));
    }
    return normed;
  }

 private:
  const TestNorm norm_;
  DeviceArray<float> gain_, bias_;
};

struct NormCase {
  TestNorm of_addend, norm;
  bool with_addend = false;
  float scale = 1;
  bool in_place = false;  // f32: the output is x
  float shift = 0;        // added to all of x
};

template <class T>
void TestAnyNorm(const NormCase& of, int64_t rows, int64_t columns) {
  std::vector<float> before = RandomValues<float>(rows * columns, rows + columns);
  for (float& value : before) value += of.shift;
  DeviceArray<float> x(before), addend(RandomValues<float>(rows * columns, 3));
  DeviceArray<T> out(rows * columns);
  const NormValues of_addend(of.of_addend, columns, 4), norm(of.norm, columns, 6);
  AddNormArgs args;
  args.x = x.data();
  args.addend = of.with_addend ? addend.data() : nullptr;
  args.addend_norm = of_addend.Args();
  args.scale = of.scale;
  args.norm = norm.Args();
  args.out = of.in_place ? static_cast<void*>(x.data()) : out.data();
  args.dtype = of.in_place ? DType::kF32 : kTypeOf<T>;
  args.rows = rows;
  args.columns = columns;
  AddNorm(args, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> sum(before.begin() + r * columns, before.begin() + (r + 1) * columns);
    if (of.with_addend) {
      const std::vector<double> added =
          of_addend.Normed({addend.data() + r * columns, addend.data() + (r + 1) * columns});
      for (int64_t c = 0; c < columns; ++c) sum[c] += of.scale * added[c];
    }
    const std::vector<double> want = norm.Normed(sum);
    for (int64_t c = 0; c < columns; ++c) {
      const std::string where = testing::PrintToString(std::pair(r, c));
      if (!of.in_place) {
        ExpectNear(x[r * columns + c], sum[c], std::abs(sum[c]) + 1, 2e-6, "x " + where);
        ExpectNear(out[r * columns + c], want[c], 1 + std::abs(of.shift), 2e-5, "out " + where);
      } else {
        ExpectNear(x[r * columns + c], want[c], 1 + std::abs(of.shift), 2e-5, "x " + where);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CudaNorm, EveryKindOfNormAndAddend) {
  for (const TestNorm& of_addend : kNorms) {
    for (const TestNorm& norm : kNorms) {
      for (const int64_t columns : {66, 1028}) {
        TestAnyNorm<float>({of_addend, norm, true, 0.25f}, 3, columns);
        TestAnyNorm<dev::bf16>({of_addend, norm, true, 1.0f}, 3, columns);
        TestAnyNorm<dev::f16>({of_addend, norm, true, -2.0f}, 2, columns);
        TestAnyNorm<float>({of_addend, norm, true, 0.25f, true}, 3, columns);
      }
    }
  }
}

TEST(CudaNorm, EveryKindOfNormAlone) {
  for (const TestNorm& norm : kNorms) {
    for (const int64_t columns : {1, 7, 64, 2048, 4100}) {
      TestAnyNorm<float>({{}, norm}, 3, columns);
      TestAnyNorm<dev::bf16>({{}, norm}, 3, columns);
      TestAnyNorm<float>({{}, norm, false, 1, true}, 3, columns);
    }
  }
}

TEST(CudaNorm, RowsOfEveryKindThatAreNotHeld) {
  for (const int64_t columns : {8196, 9300, 2049, 4359}) {
    TestAnyNorm<dev::bf16>({kNorms[4], kNorms[3], true, 0.25f}, 2, columns);
    TestAnyNorm<float>({kNorms[1], kNorms[4], true, 2.0f, true}, 2, columns);
  }
}

// The mean is a thousand times the deviation: mean(x^2) - mean^2 would have no digit of it.
TEST(CudaNorm, ALayerNormOfALargeMean) {
  NormCase of = {{}, {true, NormKind::kLayer, true}};
  of.shift = 1000.0f;
  TestAnyNorm<float>(of, 3, 2048);
}

// Two rows side by side, each with its norm.
template <class T>
void TestNormPair(const TestNorm& first, const TestNorm& second, int64_t rows, int64_t n,
                  int64_t m) {
  const DeviceArray<float> a(RandomValues<float>(rows * n, 1));
  const DeviceArray<float> b(RandomValues<float>(rows * m, 2, 30.0f));
  const NormValues of_a(first, n, 3), of_b(second, m, 5);
  DeviceArray<T> out(rows * (n + m));
  NormPairArgs args;
  args.first = {a.data(), of_a.Args(), n};
  args.second = {b.data(), of_b.Args(), m};
  args.out = out.data();
  args.dtype = kTypeOf<T>;
  args.rows = rows;
  NormPair(args, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> want = of_a.Normed({a.data() + r * n, a.data() + (r + 1) * n});
    const std::vector<double> right = of_b.Normed({b.data() + r * m, b.data() + (r + 1) * m});
    want.insert(want.end(), right.begin(), right.end());
    for (int64_t c = 0; c < n + m; ++c) {
      ExpectNear(out[r * (n + m) + c], want[c], 1 + std::abs(want[c]), 2e-5,
                 testing::PrintToString(std::pair(r, c)));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CudaNorm, APairOfRows) {
  for (const TestNorm& first : {kNorms[1], kNorms[4]}) {
    for (const TestNorm& second : {kNorms[0], kNorms[1], kNorms[3]}) {
      for (const auto& [n, m] : {std::pair(64, 64), {576, 64}, {7, 66}, {4096, 4096}, {64, 9300}}) {
        TestNormPair<float>(first, second, 3, n, m);
        TestNormPair<dev::bf16>(first, second, 1, n, m);
        TestNormPair<dev::f16>(first, second, 5, n, m);
      }
    }
  }
  TestNormPair<float>(kNorms[1], kNorms[1], 0, 64, 64);
}

template <class T>
void TestAddBias(int64_t rows, int64_t columns) {
  const std::vector<T> before = RandomValues<T>(rows * columns, rows * 31 + columns);
  DeviceArray<T> y(before);
  DeviceArray<float> bias(RandomValues<float>(columns, columns));
  AddBias(y.data(), kTypeOf<T>, bias.data(), rows, columns, nullptr);
  WaitForDevice();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double want = double{dev::ToFloat(before[i])} + bias[i % columns];
    ExpectNear(y[i], want, 1.0, 1e-6, "bias");
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CudaNorm, AddsBias) {
  for (const int64_t columns : {1, 9, 64, 1023, 1024, 1028, 3000}) {
    for (const int64_t rows : {1, 5, 34}) {
      TestAddBias<float>(rows, columns);
      TestAddBias<dev::bf16>(rows, columns);
      TestAddBias<dev::f16>(rows, columns);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
