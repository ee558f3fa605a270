// Runs a test once for every instruction set that this processor and this build share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace coppice {

// Backends of one and of three threads on the target that is the test's parameter.
class KernelTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<Backend> single_;
  std::unique_ptr<Backend> team_;
};

std::vector<int64_t> SupportedKernelTargets();
std::string TargetParamName(const testing::TestParamInfo<int64_t>& info);

#define COPPICE_ON_ALL_TARGETS(Suite)                                                   \
  INSTANTIATE_TEST_SUITE_P(Targets, Suite, testing::ValuesIn(SupportedKernelTargets()), \
                           TargetParamName)

// count values in [-1, 1), the same for the same seed.
std::vector<float> RandomFloats(int64_t count, uint64_t seed);

}  // namespace coppice
