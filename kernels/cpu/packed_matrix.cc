#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "kernels/cpu/block_panel.h"
#include "kernels/element.h"
#include "kernels/matrix_source.h"
#include "kernels/quantise.h"

namespace coppice::kernels::cpu {
namespace {

// The 16 source rows of a panel; absent rows are null.
struct PanelRows {
  const uint8_t* row[kPanelWidth];
};

static_assert(kPanelWidth == kQuantisedOutputs);

// Columns are packed in strips, so that the 16 rows read and the strip written stay in the
// first-level cache.
constexpr int64_t kStrip = 64;

template <DType kSource>
void PackPanelF32(const PanelRows& rows, int64_t columns, float* panel) {
  for (int64_t begin = 0; begin < columns; begin += kStrip) {
    const int64_t end = std::min(columns, begin + kStrip);
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const uint8_t* row = rows.row[lane];
      if (row == nullptr) continue;  // storage is zeroed
      for (int64_t k = begin; k < end; ++k) {
        panel[k * kPanelWidth + lane] = LoadElementAs<DType::kF32, kSource>(row, k);
      }
    }
  }
}

template <DType kSource>
void PackPanelBf16(const PanelRows& rows, int64_t columns, uint32_t* panel) {
  const auto load = [](const uint8_t* row, int64_t k) {
    return uint32_t{LoadElementAs<DType::kBF16, kSource>(row, k)};
  };
  for (int64_t begin = 0; begin < columns; begin += kStrip) {
    const int64_t end = std::min(columns, begin + kStrip);
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const uint8_t* row = rows.row[lane];
      if (row == nullptr) continue;
      int64_t k = begin;
      for (; k + 1 < end; k += 2) {
        const uint32_t low = load(row, k), high = load(row, k + 1);
        panel[k / 2 * kPanelWidth + lane] = low | high << 16;
      }
      if (k < end) panel[k / 2 * kPanelWidth + lane] = load(row, k);
    }
  }
}

// The values of a group, those that are absent as 0.
template <DType kSource>
void LoadGroup(const PanelRows& rows, int64_t columns, int64_t begin, QuantisedGroup* group) {
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    for (int64_t k = 0; k < kQuantisedGroup; ++k) {
      const bool present = rows.row[lane] != nullptr && begin + k < columns;
      group->values[k][lane] =
          present ? LoadElementAs<DType::kF32, kSource>(rows.row[lane], begin + k) : 0;
    }
  }
}

template <DType kSource>
void PackPanelQuantised(const PanelRows& rows, int64_t columns, DType dtype, uint8_t* panel) {
  QuantisedGroup group;
  BlockFields fields;
  for (int64_t begin = 0; begin < columns; begin += kQuantisedGroup) {
    LoadGroup<kSource>(rows, columns, begin, &group);
    Quantise(dtype, &group);
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      fields.scale = group.scale[lane];
      for (int64_t k = 0; k < kQuantisedGroup; ++k) fields.codes[k] = group.codes[k][lane];
      PackBlock(dtype, fields, begin, lane, panel);
    }
  }
}

template <DType kSource>
void PackPanel(const PanelRows& rows, int64_t columns, DType dtype, uint8_t* panel) {
  if (dtype == DType::kF32) {
    PackPanelF32<kSource>(rows, columns, reinterpret_cast<float*>(panel));
  } else if (IsBlockFormat(dtype)) {
    PackPanelQuantised<kSource>(rows, columns, dtype, panel);
  } else {
    PackPanelBf16<kSource>(rows, columns, reinterpret_cast<uint32_t*>(panel));
  }
}

// Calls f(lane, source, row) for the rows of a panel that there are.
template <class F>
void ForRowsOfPanel(absl::Span<const MatrixSource> sources, int64_t first_row, F&& f) {
  int64_t source_begin = 0;
  for (const MatrixSource& source : sources) {
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const int64_t row = first_row + lane - source_begin;
      if (row >= 0 && row < source.rows) f(lane, source, row);
    }
    source_begin += source.rows;
  }
}

PanelRows RowsOfPanel(absl::Span<const MatrixSource> sources, int64_t first_row) {
  PanelRows rows = {};
  ForRowsOfPanel(sources, first_row, [&](int lane, const MatrixSource& source, int64_t row) {
    rows.row[lane] = static_cast<const uint8_t*>(RowData(source, row));
  });
  return rows;
}

// Whether all sources have this type.
bool AllAre(absl::Span<const MatrixSource> sources, DType dtype) {
  return std::all_of(sources.begin(), sources.end(),
                     [&](const MatrixSource& source) { return source.dtype == dtype; });
}

// The rows of a panel as f32, in `values`.
PanelRows ReadRowsOfPanel(absl::Span<const MatrixSource> sources, int64_t first_row,
                          std::vector<float>* values) {
  const int64_t columns = sources[0].columns;
  values->resize(kPanelWidth * columns);
  PanelRows rows = {};
  ForRowsOfPanel(sources, first_row, [&](int lane, const MatrixSource& source, int64_t row) {
    float* const place = values->data() + lane * columns;
    ConvertRow(source, row, DType::kF32, place);
    rows.row[lane] = reinterpret_cast<const uint8_t*>(place);
  });
  return rows;
}

void PackPanels(absl::Span<const MatrixSource> sources, int64_t begin, int64_t end,
                CpuMatrix* matrix) {
  std::vector<float> values;  // of rows that are converted in two steps
  for (int64_t p = begin; p < end; ++p) {
    uint8_t* panel = matrix->storage.data + p * matrix->panel_bytes();
    if (IsBlockFormat(matrix->dtype) && AllAre(sources, matrix->dtype)) {
      const PanelRows rows = RowsOfPanel(sources, p * kPanelWidth);
      PackBlockPanel(matrix->dtype, rows.row, matrix->columns, panel);
    } else if (IsBlockFormat(sources[0].dtype) || !AllAre(sources, sources[0].dtype)) {
      const PanelRows rows = ReadRowsOfPanel(sources, p * kPanelWidth, &values);
      PackPanel<DType::kF32>(rows, matrix->columns, matrix->dtype, panel);
    } else {
      const PanelRows rows = RowsOfPanel(sources, p * kPanelWidth);
      WithElement(sources[0].dtype, [&](auto source) {
        PackPanel<source()>(rows, matrix->columns, matrix->dtype, panel);
      });
    }
  }
}

// Sources that become one type.
absl::StatusOr<std::unique_ptr<CpuMatrix>> PackRun(absl::Span<const MatrixSource> sources,
                                                   DType dtype, ThreadTeam* team,
                                                   WeightArena* arena) {
  auto matrix = std::make_unique<CpuMatrix>();
  for (const MatrixSource& source : sources) matrix->rows += source.rows;
  matrix->columns = sources[0].columns;
  matrix->dtype = dtype;
  matrix->bytes_of_panel = PanelBytes(dtype, matrix->columns);
  matrix->bytes = matrix->panels() * matrix->panel_bytes();
  COPPICE_ASSIGN_OR_RETURN(
      matrix->storage,
      arena->Allocate(matrix->bytes, absl::StrCat("a weight of ", matrix->rows, " x ",
                                                  matrix->columns, " ", DTypeName(dtype))));
  const int64_t panels = matrix->panels();
  const int64_t panels_per_chunk =
      std::max<int64_t>(1, (size_t{256} << 10) / matrix->panel_bytes());
  const int64_t fair = (panels + ThreadTeam::kMaxChunks - 1) / ThreadTeam::kMaxChunks;
  const int64_t step = std::max(panels_per_chunk, fair);
  team->Run(static_cast<int>((panels + step - 1) / step), [&](int chunk) {
    PackPanels(sources, chunk * step, std::min(panels, (chunk + 1) * step), matrix.get());
  });
  return matrix;
}

}  // namespace

size_t PanelBytes(DType dtype, int64_t columns) {
  if (IsBlockFormat(dtype)) return BlockPanelBytes(dtype, columns);
  const int64_t words = dtype == DType::kF32 ? columns : (columns + 1) / 2;
  return static_cast<size_t>(words * kPanelWidth) * sizeof(uint32_t);
}

size_t PackedBytes(DType dtype, int64_t rows, int64_t columns) {
  return (rows + kPanelWidth - 1) / kPanelWidth * PanelBytes(dtype, columns);
}

absl::StatusOr<std::unique_ptr<CpuMatrix>> PackMatrix(absl::Span<const MatrixSource> sources,
                                                      absl::Span<const DType> dtypes,
                                                      std::vector<float> bias, ThreadTeam* team,
                                                      WeightArena* arena) {
  COPPICE_RETURN_IF_ERROR(CheckStack(sources, bias.size()));
  COPPICE_RETURN_IF_ERROR(CheckTypes(sources, dtypes));
  for (const DType dtype : dtypes) {
    if (dtype == DType::kF32 || dtype == DType::kBF16 || IsBlockFormat(dtype)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pack: the CPU backend stores weights as F32, BF16 or in blocks, not as ",
                     DTypeName(dtype)));
  }
  COPPICE_RETURN_IF_ERROR(CheckBlockScales(sources, team));
  std::vector<std::unique_ptr<CpuMatrix>> runs;
  for (size_t begin = 0, end; begin < sources.size(); begin = end) {
    for (end = begin + 1; end < sources.size() && dtypes[end] == dtypes[begin];) ++end;
    COPPICE_ASSIGN_OR_RETURN(
        auto run, PackRun(sources.subspan(begin, end - begin), dtypes[begin], team, arena));
    runs.push_back(std::move(run));
  }
  std::unique_ptr<CpuMatrix> matrix;
  if (runs.size() == 1) {
    matrix = std::move(runs[0]);
  } else {
    matrix = std::make_unique<CpuMatrix>();
    matrix->columns = runs[0]->columns;
    matrix->dtype = runs[0]->dtype;
    for (const auto& run : runs) {
      matrix->rows += run->rows;
      matrix->bytes += run->bytes;
    }
    matrix->parts = std::move(runs);
  }
  matrix->bytes += bias.size() * sizeof(float);
  matrix->bias = std::move(bias);
  return matrix;
}

}  // namespace coppice::kernels::cpu
