// The gated activation, for the kernels that apply it. For .cu files.
#pragma once

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// With e = exp(-|gate|) nothing overflows: gate / (1 + e) for gate >= 0, else gate e / (1 + e).
DEV_FUNCTION float Silu(float gate) {
  const float e = expf(-fabsf(gate));
  return (gate >= 0.0f ? gate : gate * e) / (1.0f + e);
}

}  // namespace coppice::kernels::cuda
