#include <cmath>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

template <class T>
void TestSwiGlu(int64_t rows, int64_t columns, float size) {
  DeviceArray<T> gate_up(RandomValues<T>(rows * 2 * columns, rows * 10007 + columns, size));
  DeviceArray<T> out(rows * columns);
  SwiGlu(gate_up.data(), out.data(), kTypeOf<T>, rows, columns, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double gate = dev::ToFloat(gate_up[r * 2 * columns + c]);
      const double up = dev::ToFloat(gate_up[r * 2 * columns + columns + c]);
      const double want = gate / (1.0 + std::exp(-gate)) * up;
      ExpectNear(out[r * columns + c], want, std::abs(want), 1e-5,
                 testing::PrintToString(std::pair(r, c)));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CudaSwiGlu, MatchesDoublePrecision) {
  for (const int64_t columns : {1, 5, 8, 72, 1016, 2056, 4100}) {
    for (const int64_t rows : {1, 7, 34}) {
      TestSwiGlu<float>(rows, columns, 4.0f);
      TestSwiGlu<dev::bf16>(rows, columns, 4.0f);
      TestSwiGlu<dev::f16>(rows, columns, 4.0f);
    }
  }
}

TEST(CudaSwiGlu, ManyRows) { TestSwiGlu<dev::bf16>(257, 40, 4.0f); }

TEST(CudaSwiGlu, LargeGatesStayFinite) {
  const std::vector<float> gates = {-1e30f, -300.0f, -89.0f, -0.0f, 0.0f, 89.0f, 300.0f, 1e30f};
  std::vector<float> values = gates;
  values.resize(16, 2.0f);
  DeviceArray<float> gate_up(values);
  DeviceArray<float> out(8);
  SwiGlu(gate_up.data(), out.data(), DType::kF32, 1, 8, nullptr);
  WaitForDevice();
  for (int i = 0; i < 8; ++i) {
    const double gate = gates[i];
    const double want = gate < -80 ? 0.0 : gate / (1.0 + std::exp(-gate)) * 2.0;
    ExpectNear(out[i], want, std::abs(want) + 1e-3, 1e-5, std::to_string(gate));
  }
}

// A product beyond the range of f16, or of what is infinite already, is never a finite number: it
// must reach the logits.
TEST(CudaSwiGlu, OverflowInF16DoesNotLookLikeANumber) {
  const std::vector<float> gates = {300.0f, -INFINITY, INFINITY, INFINITY, 1.0f, -1.0f, 0.0f, NAN};
  const std::vector<float> ups = {300.0f, 1.0f, 1.0f, 0.0f, INFINITY, -INFINITY, INFINITY, 1.0f};
  std::vector<dev::f16> values;
  for (const float value : gates) values.push_back(dev::FromFloat<dev::f16>(value));
  for (const float value : ups) values.push_back(dev::FromFloat<dev::f16>(value));
  DeviceArray<dev::f16> gate_up(values), out(8);
  SwiGlu(gate_up.data(), out.data(), DType::kF16, 1, 8, nullptr);
  WaitForDevice();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(std::isfinite(dev::ToFloat(out[i]))) << i;
}

}  // namespace
}  // namespace coppice::kernels::cuda
