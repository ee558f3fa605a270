#include "kernels/matrix_source.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cpu/float16.h"

namespace coppice::kernels {
namespace {

// Elements of a checkpoint need not be aligned.
template <class T>
T LoadElement(const uint8_t* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

float ElementToFloat(const uint8_t* address, DType dtype) {
  if (dtype == DType::kF32) return LoadElement<float>(address);
  const auto bits = LoadElement<uint16_t>(address);
  return dtype == DType::kBF16 ? cpu::Bf16ToFloat(bits) : cpu::Fp16ToFloat(bits);
}

}  // namespace

absl::Status CheckStack(absl::Span<const MatrixSource> sources, DType dtype, size_t bias) {
  if (dtype == DType::kF16)
    return absl::InvalidArgumentError("pack: weights are stored as F32 or BF16, not F16");
  if (sources.empty()) return absl::InvalidArgumentError("pack: no source");
  int64_t rows = 0;
  for (const MatrixSource& source : sources) {
    rows += source.rows;
    if (source.data == nullptr || source.rows <= 0 || source.columns <= 0 ||
        source.row_stride < source.columns) {
      return absl::InvalidArgumentError(absl::StrCat("pack: bad source: rows ", source.rows,
                                                     ", columns ", source.columns, ", row stride ",
                                                     source.row_stride));
    }
    if (source.columns != sources[0].columns || source.dtype != sources[0].dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pack: stacked sources differ: columns ", sources[0].columns, " ",
          DTypeName(sources[0].dtype), " and ", source.columns, " ", DTypeName(source.dtype)));
    }
  }
  if (bias != 0 && static_cast<int64_t>(bias) != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: a bias of ", bias, " values for ", rows, " rows"));
  }
  return absl::OkStatus();
}

void ConvertRow(const MatrixSource& source, int64_t row, DType dtype, void* out) {
  COPPICE_CHECK(dtype != DType::kF16);
  const size_t size = DTypeSize(source.dtype);
  const auto* in = static_cast<const uint8_t*>(source.data) +
                   static_cast<size_t>(row * source.row_stride) * size;
  if (dtype == source.dtype) {
    std::memcpy(out, in, source.columns * size);
    return;
  }
  for (int64_t column = 0; column < source.columns; ++column) {
    const float value = ElementToFloat(in + column * size, source.dtype);
    if (dtype == DType::kF32) {
      static_cast<float*>(out)[column] = value;
    } else {
      static_cast<uint16_t*>(out)[column] = cpu::FloatToBf16(value);
    }
  }
}

}  // namespace coppice::kernels
