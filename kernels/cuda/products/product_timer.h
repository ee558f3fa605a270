// Times matrix products on the device as a step runs them: over different weights, none of them in
// the L2 cache. Used by the tuner. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/cache_cover.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class ProductTimer {
 public:
  // *stream must outlive the timer.
  static absl::StatusOr<ProductTimer> Create(const DeviceFacts& device, DeviceStream* stream);

  // Random values, as inputs are: the speed of a device depends on the bits that it multiplies.
  absl::Status FillInputs(const Tensor& tensor);
  absl::Status FillZero(const Tensor& tensor);
  // Seconds of one of these products, all of one shape: the median of several runs over all. Stops
  // early, with the result so far, if that is far above `good_enough`. Unimplemented: the choice
  // cannot be enqueued here, and the device works.
  absl::StatusOr<double> Time(absl::Span<const MatMulArgs> calls, const ProductChoice& choice,
                              double good_enough, MatrixProducts* products);

 private:
  ProductTimer(DeviceStream* stream, DeviceEvent begin, DeviceEvent end)
      : stream_(stream), begin_(std::move(begin)), end_(std::move(end)) {}
  absl::StatusOr<double> RunOnce(absl::Span<const MatMulArgs> calls, const ProductChoice& choice,
                                 MatrixProducts* products);
  absl::Status Refusal(const absl::Status& why);

  DeviceStream* stream_;
  DeviceEvent begin_, end_;
  std::optional<CacheCover> cover_;  // nullopt when there is no memory for it
  PinnedBuffer values_;
};

}  // namespace coppice::kernels::cuda
