// The same ops on the CPU backend and on the CUDA backend.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {

// The type of weights, activations and pool.
class OpsFixture : public testing::TestWithParam<DType> {
 protected:
  // What both backends make of the same, one after the other.
  void ExpectSame(const std::function<std::vector<float>(TestBackend*)>& run,
                  const std::string& what, double tolerances = 1) {
    const std::vector<float> want = run(cpu_.get()), got = run(cuda_.get());
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LT(RelativeDistance(got, want), tolerances * Tolerance()) << what;
  }
  static double Tolerance() {
    return GetParam() == DType::kF32 ? 1e-5 : GetParam() == DType::kBF16 ? 3e-3 : 6e-4;
  }

  std::unique_ptr<TestBackend> cpu_ = TestBackend::Make("cpu");
  std::unique_ptr<TestBackend> cuda_ = TestBackend::Make("cuda");
};

inline auto MatrixTypes() { return testing::Values(DType::kF32, DType::kBF16, DType::kF16); }
inline std::string TypeName(const testing::TestParamInfo<DType>& info) {
  return DTypeName(info.param);
}

}  // namespace coppice::kernels
