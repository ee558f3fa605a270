// The instruction sets that each kernel is compiled for; included before hwy/foreach_target.h.
// SCALAR is the baseline, then AVX2 with FMA, then AVX-512 (AVX3). Others would only add compile
// time. Highway 1.0.3 has no target with native bf16 products, so its targets widen bf16 weights to
// f32; matmul_bf16.h is beside them.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
