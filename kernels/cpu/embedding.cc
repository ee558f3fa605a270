#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "kernels/element.h"

namespace coppice::kernels::cpu {

void Embed(const CpuMatrix& w, int64_t first_row, absl::Span<const TokenId> tokens, float* out) {
  for (const TokenId token : tokens) {
    const int64_t row = token - first_row;
    if (row < 0 || row >= w.rows) {
      std::fill_n(out, w.columns, 0.0f);
    } else if (w.dtype == DType::kF32) {
      const float* panel =
          reinterpret_cast<const float*>(w.panel(row / kPanelWidth)) + row % kPanelWidth;
      for (int64_t k = 0; k < w.columns; ++k) out[k] = panel[k * kPanelWidth];
    } else {
      const uint16_t* panel =
          reinterpret_cast<const uint16_t*>(w.panel(row / kPanelWidth)) + row % kPanelWidth * 2;
      for (int64_t k = 0; k < w.columns; ++k)
        out[k] = Bf16ToFloat(panel[k / 2 * kPanelWidth * 2 + k % 2]);
    }
    out += w.columns;
  }
}

}  // namespace coppice::kernels::cpu
