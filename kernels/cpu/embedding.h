// Token embeddings, read from a packed matrix, because a tied head and the embedding share one.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/types.h"
#include "kernels/cpu/packed_matrix.h"

namespace coppice::kernels::cpu {

// out[i] = row tokens[i] - first_row of the matrix, or zeros when the matrix does not hold it.
// out [tokens, columns].
void Embed(const CpuMatrix& w, int64_t first_row, absl::Span<const TokenId> tokens, float* out);

}  // namespace coppice::kernels::cpu
