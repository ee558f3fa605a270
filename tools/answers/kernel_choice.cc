#include "tools/answers/kernel_choice.h"

#include "absl/strings/str_cat.h"
#include "hwy/highway.h"
#include "kernels/cpu/kernel_target.h"

namespace coppice::answers {

absl::Status ChooseKernels(const std::string& name) {
  if (name == "best") return absl::OkStatus();
  int64_t target = 0;
  if (name == "AVX-512") target = HWY_AVX3;
  if (name == "AVX2") target = HWY_AVX2;
  if (name == "scalar") target = HWY_SCALAR;
  if (target == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kernels: '", name, "', expected best, AVX-512, AVX2 or scalar"));
  }
  if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) {
    return absl::UnimplementedError(absl::StrCat("--kernels: this processor has no ", name));
  }
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  if (kernels::cpu::KernelTargetName() == name) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "--kernels: ", name, " is not in this build, which has ", kernels::cpu::KernelTargetName()));
}

}  // namespace coppice::answers
