#include <cmath>
#include <numbers>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                               Activation::kRelu};

double Wanted(Activation f, double x) {
  switch (f) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return x /
             (1.0 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    default:
      return x < 0 ? 0.0 : x;
  }
}

template <class T>
void TestActivate(Activation f, bool gated, int64_t rows, int64_t columns, float size) {
  const int64_t width = gated ? 2 * columns : columns;
  DeviceArray<T> in(RandomValues<T>(rows * width, rows * 10007 + columns, size));
  DeviceArray<T> out(rows * columns);
  Activate({f, gated, in.data(), out.data(), kTypeOf<T>, rows, columns}, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double x = dev::ToFloat(in[r * width + c]);
      const double up = gated ? dev::ToFloat(in[r * width + columns + c]) : 1.0;
      const double want = Wanted(f, x) * up;
      ExpectNear(out[r * columns + c], want, std::abs(want) + 1e-7, 1e-5,
                 testing::PrintToString(std::tuple(static_cast<int>(f), gated, r, c)));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CudaActivate, MatchesDoublePrecision) {
  for (const Activation f : kAll) {
    for (const bool gated : {false, true}) {
      for (const int64_t columns : {1, 5, 8, 72, 1016, 2056, 4100}) {
        for (const int64_t rows : {1, 7}) {
          TestActivate<float>(f, gated, rows, columns, 4.0f);
          TestActivate<dev::bf16>(f, gated, rows, columns, 4.0f);
          TestActivate<dev::f16>(f, gated, rows, columns, 4.0f);
        }
      }
    }
  }
}

TEST(CudaActivate, ManyRows) {
  TestActivate<dev::bf16>(Activation::kSilu, true, 257, 40, 4.0f);
  TestActivate<dev::bf16>(Activation::kGelu, false, 257, 40, 4.0f);
}

TEST(CudaActivate, LargeValuesStayFinite) {
  const std::vector<float> gates = {-1e30f, -300.0f, -89.0f, -0.0f, 0.0f, 89.0f, 300.0f, 1e30f};
  std::vector<float> values = gates;
  values.resize(16, 2.0f);
  for (const Activation f : kAll) {
    DeviceArray<float> in(values);
    DeviceArray<float> out(8);
    Activate({f, /*gated=*/true, in.data(), out.data(), DType::kF32, 1, 8}, nullptr);
    WaitForDevice();
    for (int i = 0; i < 8; ++i) {
      const double want = gates[i] < -80 ? 0.0 : Wanted(f, gates[i]) * 2.0;
      ExpectNear(out[i], want, std::abs(want) + 1e-3, 1e-5, std::to_string(gates[i]));
    }
  }
}

// A product beyond the range of f16, or of what is infinite already, is never a finite number: it
// must reach the logits.
TEST(CudaActivate, OverflowInF16DoesNotLookLikeANumber) {
  const std::vector<float> gates = {300.0f, -INFINITY, INFINITY, INFINITY, 1.0f, 2.0f, 0.0f, NAN};
  const std::vector<float> ups = {300.0f, 1.0f, 1.0f, 0.0f, INFINITY, -INFINITY, INFINITY, 1.0f};
  std::vector<dev::f16> values;
  for (const float value : gates) values.push_back(dev::FromFloat<dev::f16>(value));
  for (const float value : ups) values.push_back(dev::FromFloat<dev::f16>(value));
  for (const Activation f : kAll) {
    DeviceArray<dev::f16> in(values), out(8), alone(8);
    Activate({f, /*gated=*/true, in.data(), out.data(), DType::kF16, 1, 8}, nullptr);
    Activate({f, /*gated=*/false, in.data(), alone.data(), DType::kF16, 1, 8}, nullptr);
    WaitForDevice();
    for (int i = 0; i < 8; ++i) {
      EXPECT_FALSE(std::isfinite(dev::ToFloat(out[i]))) << static_cast<int>(f) << " " << i;
      if (std::isfinite(gates[i])) continue;
      EXPECT_FALSE(std::isfinite(dev::ToFloat(alone[i]))) << static_cast<int>(f) << " " << i;
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
