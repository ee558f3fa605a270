#include "tests/kernels/kernel_fixture.h"

#include <random>

#include "hwy/targets.h"

namespace coppice {

void KernelTest::SetUp() {
  hwy::SetSupportedTargetsForTest(GetParam());
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  single_ = MakeBackend("cpu", 1).value();
  team_ = MakeBackend("cpu", 3).value();
}

void KernelTest::TearDown() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

std::vector<int64_t> SupportedKernelTargets() {
  std::vector<int64_t> targets;
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SCALAR}) {
    if (target == HWY_SCALAR || (hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return targets;
}

std::string TargetParamName(const testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

}  // namespace coppice
