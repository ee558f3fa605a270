#include "kernels/cpu/kernel_target.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kernel_target.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

const char* CompiledTarget() {
#if HWY_TARGET == HWY_AVX3
  return "AVX-512";
#elif HWY_TARGET == HWY_SCALAR
  return "scalar";
#else
  return hwy::TargetName(HWY_TARGET);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {
HWY_EXPORT(CompiledTarget);
const char* KernelTargetName() { return HWY_DYNAMIC_DISPATCH(CompiledTarget)(); }
}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
