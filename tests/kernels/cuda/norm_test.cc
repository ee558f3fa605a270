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
  args.gain = gain.data();
  args.out = out.data();
  args.dtype = kTypeOf<T>;
  args.rows = rows;
  args.columns = columns;
  args.epsilon = 1e-5f;
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

TEST(CudaNorm, NoRows) { TestAddNorm<float>(0, 64, true); }

TEST(CudaNorm, ZeroRowStaysZero) {
  DeviceArray<float> x(std::vector<float>(96, 0.0f));
  DeviceArray<float> gain(RandomValues<float>(96, 1));
  DeviceArray<float> out(96);
  AddNormArgs args;
  args.x = x.data();
  args.gain = gain.data();
  args.out = out.data();
  args.dtype = DType::kF32;
  args.rows = 1;
  args.columns = 96;
  args.epsilon = 1e-6f;
  AddNorm(args, nullptr);
  WaitForDevice();
  for (int i = 0; i < 96; ++i) ASSERT_EQ(out[i], 0.0f);
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
