#include "kernels/matrix_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "kernels/element.h"

namespace coppice::kernels {
namespace {

// A source that is in blocks, if it is.
absl::Status CheckBlocks(const MatrixSource& source) {
  if (!IsBlockFormat(source.dtype)) return absl::OkStatus();
  const BlockFormat& format = FormatOf(source.dtype);
  if (source.columns % format.values == 0 && source.row_stride % format.values == 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pack: columns ", source.columns, ", row stride ",
                                                 source.row_stride, ", expected multiples of ",
                                                 format.values, ", a block of ", format.name));
}

// Turns `count` values of kFrom into values of kTo. False: see ConvertRow.
template <DType kFrom, DType kTo>
bool ConvertValues(const void* in, int64_t count, typename Element<kTo>::Bits* out) {
  bool fits = true;
  for (int64_t k = 0; k < count; ++k) {
    out[k] = LoadElementAs<kTo, kFrom>(in, k);
    if constexpr (kTo == DType::kF16) {
      fits &= std::isfinite(F16ToFloat(out[k])) ||
              !std::isfinite(LoadElementAs<DType::kF32, kFrom>(in, k));
    }
  }
  return fits;
}

bool ConvertBlocks(const MatrixSource& source, int64_t row, DType dtype, void* out) {
  const BlockFormat& format = FormatOf(source.dtype);
  const auto* block = static_cast<const uint8_t*>(RowData(source, row));
  bool fits = true;
  float values[kMostBlockValues];
  for (int64_t k = 0; k < source.columns; k += format.values, block += format.bytes) {
    DecodeBlocks(source.dtype, block, 1, values);
    WithElement(dtype, [&](auto to) {
      auto* const place = static_cast<typename Element<to()>::Bits*>(out) + k;
      fits &= ConvertValues<DType::kF32, to()>(values, format.values, place);
    });
  }
  return fits;
}

}  // namespace

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
    COPPICE_RETURN_IF_ERROR(CheckBlocks(source));
    if (source.columns != sources[0].columns) {
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

absl::Status CheckTypes(absl::Span<const MatrixSource> sources, absl::Span<const DType> dtypes) {
  if (sources.empty()) return absl::InvalidArgumentError("pack: no source");
  if (sources.size() != dtypes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: ", dtypes.size(), " types for ", sources.size(), " sources"));
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (IsBlockFormat(dtypes[i]) && !IsQuantisedTo(dtypes[i]) && dtypes[i] != sources[i].dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("pack: ", DTypeName(dtypes[i]), " from ", DTypeName(sources[i].dtype),
                       ", expected ", DTypeName(dtypes[i]), ": its blocks are kept"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBlockScales(absl::Span<const MatrixSource> sources, ThreadTeam* team) {
  for (size_t s = 0; s < sources.size(); ++s) {
    const MatrixSource& source = sources[s];
    if (!IsBlockFormat(source.dtype)) continue;
    const int64_t blocks = source.columns / FormatOf(source.dtype).values;
    const auto chunks = std::min<int64_t>(source.rows, ThreadTeam::kMaxChunks);
    std::vector<int64_t> bad(chunks, -1);  // row * blocks + block
    team->Run(static_cast<int>(chunks), [&](int chunk) {
      const int64_t end = source.rows * (chunk + 1) / chunks;
      for (int64_t row = source.rows * chunk / chunks; row < end && bad[chunk] < 0; ++row) {
        const int64_t block = FirstNotFinite(source.dtype, RowData(source, row), blocks);
        if (block >= 0) bad[chunk] = row * blocks + block;
      }
    });
    const auto first = std::find_if(bad.begin(), bad.end(), [](int64_t at) { return at >= 0; });
    if (first == bad.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pack: ",
        sources.size() > 1 ? absl::StrCat("matrix ", s + 1, " of ", sources.size(), ", ") : "",
        "row ", *first / blocks, ", block ", *first % blocks, ": scale is not finite"));
  }
  return absl::OkStatus();
}

MatrixSource RowsOf(const MatrixSource& source, int64_t begin, int64_t end) {
  MatrixSource part = source;
  part.data = RowData(source, begin);
  part.rows = end - begin;
  return part;
}

absl::StatusOr<MatrixSource> ColumnsOf(const MatrixSource& source, int64_t begin, int64_t end) {
  if (IsBlockFormat(source.dtype)) {
    const BlockFormat& format = FormatOf(source.dtype);
    if (begin % format.values != 0 || end % format.values != 0) {
      return absl::InvalidArgumentError(absl::StrCat("columns ", begin, " to ", end,
                                                     ", expected multiples of ", format.values,
                                                     ", a block of ", format.name));
    }
  }
  MatrixSource part = source;
  part.data = static_cast<const uint8_t*>(source.data) + RowBytes(source.dtype, begin);
  part.columns = end - begin;
  return part;
}

const void* RowData(const MatrixSource& source, int64_t row) {
  return static_cast<const uint8_t*>(source.data) + RowBytes(source.dtype, row * source.row_stride);
}

bool ConvertRow(const MatrixSource& source, int64_t row, DType dtype, void* out) {
  if (IsBlockFormat(source.dtype)) return ConvertBlocks(source, row, dtype, out);
  const void* in = RowData(source, row);
  if (dtype == source.dtype) {
    std::memcpy(out, in, source.columns * DTypeSize(dtype));
    return true;
  }
  return WithElement(source.dtype, [&](auto from) {
    return WithElement(dtype, [&](auto to) {
      return ConvertValues<from(), to()>(in, source.columns,
                                         static_cast<typename Element<to()>::Bits*>(out));
    });
  });
}

}  // namespace coppice::kernels
