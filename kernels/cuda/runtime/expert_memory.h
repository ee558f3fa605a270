// Device memory of layers of experts: for each layer the addresses of its matrices, and lists and
// activations that all layers of one shape share. Made when a layer is first met, and kept. Owned by
// CudaBackend. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/cuda/runtime/device_buffer.h"

namespace coppice::kernels::cuda {

class ExpertMemory {
 public:
  // *loader must outlive this.
  explicit ExpertMemory(DeviceLoader* loader) : loader_(loader) {}

  // The arguments of the layer, for steps of as many rows as x has, but for the rows of the step.
  // The weights are those of the backend, of x's type.
  absl::StatusOr<ExpertsArgs> ArgsOf(const Experts& experts, const Tensor& x, const Tensor& out);

 private:
  // What the size of the shared memory follows from.
  struct Shape {
    int64_t rows = 0, experts = 0, chosen = 0, columns = 0, inner = 0, element = 0;

    auto operator<=>(const Shape&) const = default;
  };

  absl::StatusOr<const void* const*> Table(absl::Span<const std::unique_ptr<Weight>> matrices);

  DeviceLoader* const loader_;
  // By what they hold: a layer that is freed leaves nothing wrong behind.
  std::map<std::vector<const void*>, DeviceBuffer> tables_;
  std::map<Shape, DeviceBuffer> shared_;
};

}  // namespace coppice::kernels::cuda
