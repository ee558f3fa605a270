// Fills the panels of a matrix in blocks (ops/block_matrix.h) from a checkpoint. Called by
// DeviceLoader, from several threads, each for panels of its own. Pure.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace coppice::kernels::cuda {

// Fills a panel of `dtype`, Q8_0 or Q4_0, with outputs [first, first + 16) of the stack. Blocks of
// that format are kept bit for bit; so are the values of Q4_0 in a panel of Q8_0. Other values are
// quantised (quantise.h). panel: its BlockPanelBytes, any contents. False when the values are for F16
// and one of them, scale times code, is beyond its range.
bool FillBlockPanel(absl::Span<const MatrixSource> stacked, int64_t first, DType dtype,
                    DType values, uint8_t* panel);

}  // namespace coppice::kernels::cuda
