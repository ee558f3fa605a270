#include "kernels/cpu/kernel_target.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/matmul_bf16.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kernel_target.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

int64_t CompiledTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(CompiledTarget);

namespace {

constexpr KernelTarget kAll[] = {KernelTarget::kScalar, KernelTarget::kAvx2, KernelTarget::kAvx512,
                                 KernelTarget::kAvx512Bf16};

std::atomic<bool> without_bf16_dot = false;

int64_t HighwayTarget(KernelTarget target) {
  switch (target) {
    case KernelTarget::kScalar:
      return HWY_SCALAR;
    case KernelTarget::kAvx2:
      return HWY_AVX2;
    default:
      return HWY_AVX3;
  }
}

// The targets that Highway found before one was chosen.
int64_t ProcessorTargets() {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

bool Supported(KernelTarget target) {
  if (target == KernelTarget::kScalar) return true;
  if (target == KernelTarget::kAvx512Bf16 && !HasBf16Dot()) return false;
  return (ProcessorTargets() & HWY_TARGETS & HighwayTarget(target)) != 0;
}

std::string Plain(absl::string_view name) {
  std::string plain = absl::AsciiStrToLower(name);
  plain.erase(std::remove_if(plain.begin(), plain.end(),
                             [](char c) { return c == ' ' || c == '-' || c == '_'; }),
              plain.end());
  return plain;
}

}  // namespace

const char* KernelTargetName(KernelTarget target) {
  constexpr const char* kNames[] = {"scalar", "AVX2", "AVX-512", "AVX-512 BF16"};
  return kNames[static_cast<int>(target)];
}

std::vector<KernelTarget> SupportedKernelTargets() {
  std::vector<KernelTarget> targets;
  std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(targets), Supported);
  return targets;
}

KernelTarget CurrentKernelTarget() {
  switch (HWY_DYNAMIC_DISPATCH(CompiledTarget)()) {
    case HWY_AVX3:
      return HasBf16Dot() && !without_bf16_dot ? KernelTarget::kAvx512Bf16 : KernelTarget::kAvx512;
    case HWY_AVX2:
      return KernelTarget::kAvx2;
    default:
      return KernelTarget::kScalar;
  }
}

const char* KernelTargetName() { return KernelTargetName(CurrentKernelTarget()); }

void SetKernelTarget(KernelTarget target) {
  ProcessorTargets();
  hwy::SetSupportedTargetsForTest(HighwayTarget(target));
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  without_bf16_dot = target != KernelTarget::kAvx512Bf16;
}

void ResetKernelTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  without_bf16_dot = false;
}

absl::Status ChooseKernelTarget(absl::string_view name) {
  if (Plain(name) == "best") return absl::OkStatus();
  std::vector<std::string> names = {"best"};
  for (const KernelTarget target : kAll) {
    names.emplace_back(KernelTargetName(target));
    if (Plain(names.back()) != Plain(name)) continue;
    if (!Supported(target)) {
      return absl::UnimplementedError(absl::StrCat(
          "--kernels: this processor or this build has no ", KernelTargetName(target)));
    }
    SetKernelTarget(target);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kernels: '", name, "', expected one of ", absl::StrJoin(names, ", ")));
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
