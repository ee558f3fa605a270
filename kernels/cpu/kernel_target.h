// Which instruction set the kernels run on.
#pragma once

namespace coppice::kernels::cpu {

// "AVX-512", "AVX2" or "scalar": the best that both the processor and this build support.
const char* KernelTargetName();

}  // namespace coppice::kernels::cpu
