// Matrix products by cuBLASLt: y = x w^T. Sums in f32; f32 weights without TF32. No algorithm that
// sums in another type than f32, or in the output itself, is proposed or taken. Owned by
// MatrixProducts. Thread-compatible.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/products/product_table.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, row-major, + bias; with accumulate y +=
// it. All in device memory. x has the type of w; y may be f32 besides.
struct MatMulArgs {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  DType type = DType::kF32;    // type of w and x; or of w alone: Q8_0, Q4_0, not by cuBLASLt
  DType y_type = DType::kF32;  // f32 or that of x
  int64_t rows = 0, inputs = 0, outputs = 0;
  bool accumulate = false;
  const float* bias = nullptr;  // [outputs] or nullptr
  // [rows, outputs / 2] of y_type or nullptr: SwiGLU of y, which is gates, then ups. The contents
  // of y are then undefined.
  void* gated = nullptr;
  // Rows for which x and y have room, at least `rows`; 0 = rows. Rows after `rows` may also be
  // computed, from any values.
  int64_t room = 0;
  DType block_values = DType::kBF16;  // with w in blocks: type of its values and of x

  bool operator==(const MatMulArgs&) const = default;
};

class CublasMatMul {
 public:
  using Algorithm = std::array<uint64_t, 8>;

  // *stream must outlive the result.
  static absl::StatusOr<std::unique_ptr<CublasMatMul>> Create(DeviceStream* stream);
  CublasMatMul(const CublasMatMul&) = delete;
  CublasMatMul& operator=(const CublasMatMul&) = delete;
  ~CublasMatMul();

  static uint64_t version();
  // Shared by all products of the stream. Free between two pieces of its work.
  const DeviceBuffer& workspace() const { return workspace_; }

  // The algorithms that the library proposes, its first choice first, at most `count`; leaves out
  // those whose way of summing it cannot tell. Where it has none for matrices that are aligned as
  // buffers are, it is asked again for the alignment of their rows. Unimplemented: there are none.
  absl::StatusOr<std::vector<Algorithm>> Propose(const ProductKey& key, int count);
  // Whether this library accepts the algorithm, with our workspace, and it sums as required.
  bool Takes(const ProductKey& key, const Algorithm& algorithm);
  // Enqueues the product of key.rows rows; no bias, no SwiGLU. Unimplemented names what cuBLASLt
  // refuses.
  absl::Status Enqueue(const MatMulArgs& args, const ProductKey& key, const Algorithm& algorithm);

 private:
  struct Layouts;

  explicit CublasMatMul(DeviceStream* stream) : stream_(stream) {}
  absl::StatusOr<std::vector<Algorithm>> Ask(const ProductKey& key, int count, bool of_rows);

  DeviceStream* const stream_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
};

}  // namespace coppice::kernels::cuda
