#include "kernels/cpu/embedding.h"

#include <algorithm>

#include "kernels/block_format.h"
#include "kernels/cpu/block_panel.h"
#include "kernels/element.h"

namespace coppice::kernels::cpu {
namespace {

// A row of a matrix of one type.
void ReadRow(const CpuMatrix& w, int64_t row, float* out) {
  const uint8_t* panel = w.panel(row / kPanelWidth);
  const int64_t lane = row % kPanelWidth;
  if (IsBlockFormat(w.dtype)) return ReadBlockRow(w.dtype, panel, lane, w.columns, out);
  if (w.dtype == DType::kF32) {
    const float* values = reinterpret_cast<const float*>(panel) + lane;
    for (int64_t k = 0; k < w.columns; ++k) out[k] = values[k * kPanelWidth];
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
