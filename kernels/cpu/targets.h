// Included before hwy/foreach_target.h: the instruction sets each kernel is compiled for. SCALAR is
// the baseline, then AVX2 with FMA, AVX-512 (AVX3); the others would only add compile time.
// Highway 1.0.3 has no target with native bf16 products: bf16 weights are widened to f32 on every
// target.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
