#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "kernels/block_format.h"
#include "kernels/cpu/block_panel.h"
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

void ReadInt8(const uint8_t* panel, int64_t lane, int64_t columns, float* out) {
  for (int64_t k = 0; k < columns; ++k) {
    const uint8_t* group = panel + k / kInt8Group * kInt8GroupBytes;
    const int64_t in_group = k % kInt8Group;
    const int q = group[kPanelWidth * sizeof(float) + (in_group / 4 * kPanelWidth + lane) * 4 +
                        in_group % 4] -
                  128;
    out[k] = static_cast<float>(q) * reinterpret_cast<const float*>(group)[lane];
  }
}

// A row of a matrix of one type.
void ReadRow(const CpuMatrix& w, int64_t row, float* out) {
  const uint8_t* panel = w.panel(row / kPanelWidth);
  const int64_t lane = row % kPanelWidth;
  if (IsBlockFormat(w.dtype)) return ReadBlockRow(w.dtype, panel, lane, w.columns, out);
  if (w.dtype == DType::kI8) return ReadInt8(panel, lane, w.columns, out);
  if (w.dtype == DType::kF32) {
    const float* values = reinterpret_cast<const float*>(panel) + lane;
    for (int64_t k = 0; k < w.columns; ++k) out[k] = values[k * kPanelWidth];
  } else if (w.dtype == DType::kI4) {
    for (int64_t k = 0; k < w.columns; ++k) out[k] = Int4Value(panel, lane, k);
  } else {
    const uint16_t* values = reinterpret_cast<const uint16_t*>(panel) + lane * 2;
    for (int64_t k = 0; k < w.columns; ++k)
      out[k] = Bf16ToFloat(values[k / 2 * kPanelWidth * 2 + k % 2]);
  }
}

}  // namespace

void Embed(const CpuMatrix& w, int64_t first_row, absl::Span<const TokenId> tokens, float* out) {
  for (const TokenId token : tokens) {
    int64_t row = token - first_row;
    if (row < 0 || row >= w.rows) {
      std::fill_n(out, w.columns, 0.0f);
    } else if (w.parts.empty()) {
      ReadRow(w, row, out);
    } else {
      size_t part = 0;
      while (row >= w.parts[part]->rows) row -= w.parts[part++]->rows;
      ReadRow(*w.parts[part], row, out);
    }
    out += w.columns;
  }
}

}  // namespace coppice::kernels::cpu
