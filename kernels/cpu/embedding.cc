#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "kernels/element.h"

namespace coppice::kernels::cpu {
namespace {

float Int4Value(const uint8_t* panel, int64_t lane, int64_t k) {
  const uint8_t* block = panel + k / kInt8Group * kInt4BlockBytes;
  const int64_t part = k / kInt4Group % 2, in_group = k % kInt4Group;
  const int64_t half = in_group / 16, step = in_group % 16 / 4;
  const uint8_t* bytes = block + kPanelWidth * (sizeof(uint32_t) + part * 16);
  const int code = bytes[(step * kPanelWidth + lane) * 4 + k % 4] >> (half * 4) & 15;
  return static_cast<float>(code - 8) *
         Bf16ToFloat(reinterpret_cast<const uint16_t*>(block)[lane * 2 + part]);
}

}  // namespace

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
    } else if (w.dtype == DType::kI4) {
      const int64_t lane = row % kPanelWidth;
      for (int64_t k = 0; k < w.columns; ++k)
        out[k] = Int4Value(w.panel(row / kPanelWidth), lane, k);
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
