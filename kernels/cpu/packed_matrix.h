// A weight matrix in panels of 16 outputs. SIMD lanes run over outputs, so each output is one chain
// of multiply-adds in input order, whatever the batch. Panel p holds outputs 16 p .. 16 p + 15
// (absent ones are zeros):
//   f32   [columns][16]
//   bf16  [ceil(columns / 2)][16][2]: the 32-bit word of a lane holds inputs 2 k (low half) and
//         2 k + 1 (high half)
//   block formats: block_panel.h
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
