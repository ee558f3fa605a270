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
    } else if (w.dtype == DType::kI8) {
      for (int64_t k = 0; k < w.columns; ++k) {
        const uint8_t* group = w.panel(row / kPanelWidth) + k / kInt8Group * kInt8GroupBytes;
        const int64_t lane = row % kPanelWidth, in_group = k % kInt8Group;
        const int q = group[kPanelWidth * sizeof(float) + (in_group / 4 * kPanelWidth + lane) * 4 +
                            in_group % 4] -
                      128;
        out[k] = static_cast<float>(q) * reinterpret_cast<const float*>(group)[lane];
      }
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
