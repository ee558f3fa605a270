#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/int4.h"
#include "kernels/cpu/int8.h"
#include "kernels/element.h"
#include "kernels/matrix_source.h"

namespace coppice::kernels::cpu {
namespace {

// The 16 source rows of a panel; absent rows are null.
struct PanelRows {
  const uint8_t* row[kPanelWidth];
};

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

template <DType kSource>
void PackPanelInt8(const PanelRows& rows, int64_t columns, uint8_t* panel) {
  for (int64_t g = 0; g < Int8Groups(columns); ++g) {
    auto* scales = reinterpret_cast<float*>(panel + g * kInt8GroupBytes);
    uint8_t* words = panel + g * kInt8GroupBytes + kPanelWidth * sizeof(float);
    const int64_t begin = g * kInt8Group, count = std::min(kInt8Group, columns - begin);
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      float values[kInt8Group];
      int8_t q[kInt8Group] = {};
      if (rows.row[lane] != nullptr) {
        for (int64_t k = 0; k < count; ++k)
          values[k] = LoadElementAs<DType::kF32, kSource>(rows.row[lane], begin + k);
        scales[lane] = QuantiseGroup(values, count, q);
      }
      for (int64_t k = 0; k < kInt8Group; ++k)
        words[(k / 4 * kPanelWidth + lane) * 4 + k % 4] = static_cast<uint8_t>(q[k] + 128);
    }
  }
}

// The values of a group, those that are absent as 0.
template <DType kSource>
void LoadGroup(const PanelRows& rows, int64_t columns, int64_t begin, Int4Group* group) {
  for (int lane = 0; lane < kPanelWidth; ++lane) {
    for (int64_t k = 0; k < kInt4Group; ++k) {
      const bool present = rows.row[lane] != nullptr && begin + k < columns;
      group->values[k][lane] =
          present ? LoadElementAs<DType::kF32, kSource>(rows.row[lane], begin + k) : 0;
    }
  }
}

template <DType kSource>
void PackPanelInt4(const PanelRows& rows, int64_t columns, uint8_t* panel) {
  constexpr int64_t kHalf = kInt4Group / 2;
  Int4Group group;
  for (int64_t begin = 0; begin < Int8Groups(columns) * kInt8Group; begin += kInt4Group) {
    uint8_t* block = panel + begin / kInt8Group * kInt4BlockBytes;
    const int64_t part = begin / kInt4Group % 2;
    LoadGroup<kSource>(rows, columns, begin, &group);
    QuantiseInt4(&group);
    uint8_t* bytes = block + kPanelWidth * (sizeof(uint32_t) + part * kHalf);
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      reinterpret_cast<uint16_t*>(block)[lane * 2 + part] = group.scale[lane];
      for (int64_t k = 0; k < kHalf; ++k) {
        bytes[(k / 4 * kPanelWidth + lane) * 4 + k % 4] =
            static_cast<uint8_t>(group.codes[k][lane] | group.codes[kHalf + k][lane] << 4);
      }
    }
  }
}

template <DType kSource>
void PackPanel(const PanelRows& rows, int64_t columns, DType dtype, uint8_t* panel) {
  if (dtype == DType::kF32) {
    PackPanelF32<kSource>(rows, columns, reinterpret_cast<float*>(panel));
  } else if (dtype == DType::kI8) {
    PackPanelInt8<kSource>(rows, columns, panel);
  } else if (dtype == DType::kI4) {
    PackPanelInt4<kSource>(rows, columns, panel);
  } else {
    PackPanelBf16<kSource>(rows, columns, reinterpret_cast<uint32_t*>(panel));
  }
}

PanelRows RowsOfPanel(absl::Span<const MatrixSource> sources, int64_t first_row) {
  PanelRows rows = {};
  int64_t source_begin = 0;
  for (const MatrixSource& source : sources) {
    for (int lane = 0; lane < kPanelWidth; ++lane) {
      const int64_t row = first_row + lane - source_begin;
      if (row < 0 || row >= source.rows) continue;
      rows.row[lane] = static_cast<const uint8_t*>(source.data) +
                       static_cast<size_t>(row * source.row_stride) * DTypeSize(source.dtype);
    }
    source_begin += source.rows;
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuMatrix>> PackMatrix(absl::Span<const MatrixSource> sources,
                                                      DType dtype, std::vector<float> bias,
                                                      ThreadTeam* team, WeightArena* arena) {
  if (dtype == DType::kF16) {
    return absl::InvalidArgumentError(
        "pack: the CPU backend stores weights as F32, BF16, I8 or I4, not as F16");
  }
  COPPICE_RETURN_IF_ERROR(CheckStack(sources, bias.size()));
  auto matrix = std::make_unique<CpuMatrix>();
  for (const MatrixSource& source : sources) matrix->rows += source.rows;
  matrix->columns = sources[0].columns;
  matrix->dtype = dtype;
  const size_t panel_bytes = matrix->panels() * matrix->panel_bytes();
  COPPICE_ASSIGN_OR_RETURN(
      matrix->storage,
      arena->Allocate(panel_bytes, absl::StrCat("a weight of ", matrix->rows, " x ",
                                                matrix->columns, " ", DTypeName(dtype))));
  matrix->bytes = panel_bytes + bias.size() * sizeof(float);
  matrix->bias = std::move(bias);

  const int64_t panels = matrix->panels();
  const int64_t panels_per_chunk =
      std::max<int64_t>(1, (size_t{256} << 10) / matrix->panel_bytes());
  const int64_t fair = (panels + ThreadTeam::kMaxChunks - 1) / ThreadTeam::kMaxChunks;
  const int64_t step = std::max(panels_per_chunk, fair);
  team->Run(static_cast<int>((panels + step - 1) / step), [&](int chunk) {
    for (int64_t p = chunk * step; p < std::min(panels, (chunk + 1) * step); ++p) {
      const PanelRows rows = RowsOfPanel(sources, p * kPanelWidth);
      uint8_t* panel = matrix->storage.data + p * matrix->panel_bytes();
      WithElement(sources[0].dtype,
                  [&](auto source) { PackPanel<source()>(rows, matrix->columns, dtype, panel); });
    }
  });
  return matrix;
}

}  // namespace coppice::kernels::cpu
