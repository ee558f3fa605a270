#include "kernels/cuda/runtime/block_packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/block_format.h"
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/element.h"
#include "kernels/matrix_source.h"
#include "kernels/quantise.h"

namespace coppice::kernels::cuda {
namespace {

static_assert(kBlockPanel == kQuantisedOutputs);

// A panel that is being filled.
class Panel {
 public:
  Panel(DType dtype, DType values, uint8_t* bytes)
      : four_bits_(dtype == DType::kQ4_0), f16_(values == DType::kF16), bytes_(bytes) {}

  // codes: of 32 inputs from `begin` on, as the format has them.
  void Put(int64_t output, int64_t begin, uint16_t scale, const uint8_t* codes) {
    uint8_t* const unit = bytes_ + begin / kBlockUnit * BlockUnitBytes(four_bits_);
    const int64_t first = begin % kBlockUnit;
    std::memcpy(unit + PlaceInUnit(four_bits_, output, first).scale, &scale, sizeof scale);
    for (int64_t k = 0; k < kQuantisedGroup; ++k) {
      const BlockPlace place = PlaceInUnit(four_bits_, output, first + k);
      unit[place.code] |=
          static_cast<uint8_t>((four_bits_ ? codes[k] : codes[k] ^ 0x80) << place.shift);
    }
    if (f16_) CheckRange(F16ToFloat(scale), codes);
  }
  bool fits() const { return fits_; }

 private:
  void CheckRange(float scale, const uint8_t* codes) {
    constexpr float kMostCode = 128;
    if (!std::isfinite(scale) || std::abs(scale) * kMostCode <= kLargestF16) return;
    for (int64_t k = 0; k < kQuantisedGroup; ++k) {
      const int code = four_bits_ ? codes[k] - 8 : static_cast<int8_t>(codes[k]);
      fits_ &= std::isfinite(F16ToFloat(FloatToF16(scale * static_cast<float>(code))));
    }
  }

  const bool four_bits_, f16_;
  uint8_t* const bytes_;
  bool fits_ = true;
};

void PutBlocks(const MatrixSource& source, int64_t row, int64_t output, DType dtype, Panel* panel) {
  const BlockFormat& format = FormatOf(source.dtype);
  const auto* block = static_cast<const uint8_t*>(RowData(source, row));
  BlockFields fields;
  for (int64_t begin = 0; begin < source.columns; begin += format.values, block += format.bytes) {
    ReadFields(source.dtype, block, &fields);
    if (source.dtype != dtype) {
      for (uint8_t& code : absl::MakeSpan(fields.codes, kQuantisedGroup))
        code = static_cast<uint8_t>(code - 8);
    }
    panel->Put(output, begin, fields.scale, fields.codes);
  }
}

// The outputs of `values` [16][columns] that `there` names.
void Quantise(const std::vector<float>& values, const std::vector<int64_t>& there, int64_t columns,
              DType dtype, Panel* panel) {
  QuantisedGroup group;
  uint8_t codes[kQuantisedGroup];
  for (int64_t begin = 0; begin < columns; begin += kQuantisedGroup) {
    const int64_t end = std::min(columns, begin + kQuantisedGroup);
    std::fill_n(&group.values[0][0], kQuantisedGroup * kQuantisedOutputs, 0.0f);
    for (const int64_t output : there) {
      for (int64_t k = begin; k < end; ++k)
        group.values[k - begin][output] = values[output * columns + k];
    }
    kernels::Quantise(dtype, &group);
    for (const int64_t output : there) {
      for (int64_t k = 0; k < kQuantisedGroup; ++k) codes[k] = group.codes[k][output];
      panel->Put(output, begin, group.scale[output], codes);
    }
  }
}

}  // namespace

bool FillBlockPanel(absl::Span<const MatrixSource> stacked, int64_t first, DType dtype,
                    DType values, uint8_t* bytes) {
  const int64_t columns = stacked[0].columns;
  std::memset(bytes, 0, BlockPanelBytes(dtype == DType::kQ4_0, columns));
  Panel panel(dtype, values, bytes);
  std::vector<float> floats;       // [16][columns], of rows that are no blocks to be kept
  std::vector<int64_t> quantised;  // their outputs
  int64_t begin = 0;               // first row of the source in the stack
  for (const MatrixSource& source : stacked) {
    for (int64_t output = 0; output < kBlockPanel; ++output) {
      const int64_t row = first + output - begin;
      if (row < 0 || row >= source.rows) continue;
      if (source.dtype == dtype || (source.dtype == DType::kQ4_0 && dtype == DType::kQ8_0)) {
        PutBlocks(source, row, output, dtype, &panel);
        continue;
      }
      floats.resize(kBlockPanel * columns);
      ConvertRow(source, row, DType::kF32, floats.data() + output * columns);
      quantised.push_back(output);
    }
    begin += source.rows;
  }
  if (!quantised.empty()) Quantise(floats, quantised, columns, dtype, &panel);
  return panel.fits();
}

}  // namespace coppice::kernels::cuda
