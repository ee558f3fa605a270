// In which types the matrices of a model are kept: one for all that are not in blocks, which is that
// of the activations, and blocks of Q8_0 and Q4_0 beside it. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/cuda_weights.h"

namespace coppice::kernels::cuda {

class WeightPacker {
 public:
  // *loader must outlive the packer.
  explicit WeightPacker(DeviceLoader* loader) : loader_(loader) {}

  static bool Stores(DType dtype);
  // As in Backend.
  void SetActivations(DType dtype) { activations_ = dtype; }
  DType activations() const { return activations_.value_or(DType::kF32); }
  absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked, DType dtype,
                                               const std::vector<float>& bias);
  absl::StatusOr<std::unique_ptr<Weight>> PackEach(absl::Span<const MatrixSource> stacked,
                                                   absl::Span<const DType> dtypes,
                                                   const std::vector<float>& bias);

 private:
  absl::StatusOr<std::unique_ptr<Weight>> PackBlocks(absl::Span<const MatrixSource> stacked,
                                                     DType dtype, const std::vector<float>& bias);

  DeviceLoader* const loader_;
  std::optional<DType> activations_;  // once they are known
};

}  // namespace coppice::kernels::cuda
