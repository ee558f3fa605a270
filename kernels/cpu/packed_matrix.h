// A weight matrix in panels of 16 outputs. SIMD lanes run over outputs, so each output is one chain
// of multiply-adds in input order, whatever the batch. Panel p holds outputs 16 p .. 16 p + 15
// (absent ones are zeros):
//   f32   [columns][16]
//   bf16  [ceil(columns / 2)][16][2]: the 32-bit word of a lane holds inputs 2 k (low half) and
//         2 k + 1 (high half)
//   int8  [groups of 64 columns]: [16] f32 scales, then [16][16][4] bytes: the 32-bit word of a
//         lane holds inputs 4 k .. 4 k + 3, each as q + 128 (int8.h)
//   int4  [blocks of 64 columns]: [16] scales as bf16, that of the first 32 inputs in the low half
//         of a lane's word, then for each 32 inputs [4][16][4] bytes: byte b of step j of a lane
//         holds inputs 4 j + b (low half) and 16 + 4 j + b (high half), each as q + 8 (int4.h)
// Immutable once packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/weight_arena.h"

namespace coppice::kernels::cpu {

inline constexpr int64_t kInt8GroupBytes = kPanelWidth * (sizeof(float) + kInt8Group);
inline constexpr int64_t kInt4Group = 32;  // inputs that share a scale
// As many inputs as a group of int8 has, because the inputs of products are in such groups.
inline constexpr int64_t kInt4BlockBytes = kPanelWidth * (sizeof(uint32_t) + kInt8Group / 2);

// Bytes of the values of a panel, and of a matrix without its bias.
size_t PanelBytes(DType dtype, int64_t columns);
size_t PackedBytes(DType dtype, int64_t rows, int64_t columns);

class CpuMatrix : public Weight {
 public:
  int64_t panels() const { return (rows + kPanelWidth - 1) / kPanelWidth; }
  size_t panel_bytes() const { return bytes_of_panel; }
  const uint8_t* panel(int64_t index) const { return storage.data + index * panel_bytes(); }

  WeightMemory storage;
  size_t bytes_of_panel = 0;
  std::vector<float> bias;  // [rows] or empty
  // If the rows are of several types: the runs of rows of one type, in order, without biases. Then
  // the matrix has no panels of its own.
  std::vector<std::unique_ptr<CpuMatrix>> parts;
};

// Stacks the sources along their rows, each as the type of `dtypes` at its place. Reads each source
// once. Errors: Backend::Pack.
absl::StatusOr<std::unique_ptr<CpuMatrix>> PackMatrix(absl::Span<const MatrixSource> sources,
                                                      absl::Span<const DType> dtypes,
                                                      std::vector<float> bias, ThreadTeam* team,
                                                      WeightArena* arena);

}  // namespace coppice::kernels::cpu
