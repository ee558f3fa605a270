#include "kernels/matrix_source.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/element.h"

namespace coppice::kernels {
absl::Status CheckStack(absl::Span<const MatrixSource> sources, size_t bias) {
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

bool ConvertRow(const MatrixSource& source, int64_t row, DType dtype, void* out) {
  const auto* in = static_cast<const uint8_t*>(source.data) +
                   static_cast<size_t>(row * source.row_stride) * DTypeSize(source.dtype);
  if (dtype == source.dtype) {
    std::memcpy(out, in, source.columns * DTypeSize(dtype));
    return true;
  }
  bool fits = true;
  WithElement(source.dtype, [&](auto from) {
    WithElement(dtype, [&](auto to) {
      auto* const values = static_cast<typename Element<to()>::Bits*>(out);
      for (int64_t column = 0; column < source.columns; ++column) {
        values[column] = LoadElementAs<to(), from()>(in, column);
        if constexpr (to() == DType::kF16) {
          fits &= std::isfinite(F16ToFloat(values[column])) ||
                  !std::isfinite(LoadElementAs<DType::kF32, from()>(in, column));
        }
      }
    });
  });
  return fits;
}

}  // namespace coppice::kernels
