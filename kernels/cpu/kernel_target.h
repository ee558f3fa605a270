// Which instruction set the kernels run on: the best that both the processor and this build
// support, unless another one is chosen before the first kernel runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice::kernels::cpu {

// In ascending order. kAvx512Bf16 is kAvx512 with dot products of bf16 (matmul_bf16.h): products
// with bf16 weights round their input to bf16, so its results differ from those of the others.
enum class KernelTarget { kScalar, kAvx2, kAvx512, kAvx512Bf16 };

// "scalar", "AVX2", "AVX-512", "AVX-512 BF16".
const char* KernelTargetName(KernelTarget target);
// The targets that this processor and this build support, in ascending order.
std::vector<KernelTarget> SupportedKernelTargets();

// The target in use. Any thread.
KernelTarget CurrentKernelTarget();
const char* KernelTargetName();

// Sets the target from now on; not while a kernel runs. It must be supported.
void SetKernelTarget(KernelTarget target);
void ResetKernelTarget();  // back to the best target
// "best" or a name; case, blanks, "-" and "_" do not matter. InvalidArgument: another name.
// Unimplemented: this machine or this build does not support it.
absl::Status ChooseKernelTarget(absl::string_view name);

}  // namespace coppice::kernels::cpu
