// Attention over K and V in bf16 or codes of 8 bits with the bf16 dot products of AVX-512: queries
// and weights of the softmax are rounded to bf16, products and sums are f32, as GPUs do it. bf16
// holds a code exactly, and the scales of codes go to the scores and the weights. Used by Attention when the
// kernel target is AVX-512 BF16 (kernel_target.h). As there, the bits of a row depend only on its
// query and its context.
#pragma once

#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_unit.h"

namespace coppice::kernels::cpu {

// Whether the kernel serves that pool and rule: bf16 or codes, head_dim 64 or 128, no cap, and the
// target has the instructions.
bool AttendsWithBf16Dot(const KvPoolShape& shape, const AttentionRule& rule);

// Requires AttendsWithBf16Dot. memory: kept from unit to unit.
void AttendUnitBf16(const AttentionArgs& args, const AttentionUnit& unit,
                    std::vector<float>* memory);

}  // namespace coppice::kernels::cpu
