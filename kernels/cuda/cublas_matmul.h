// Matrix products by cuBLASLt: y = x w^T. Sums in f32; f32 weights without TF32. An algorithm is
// chosen once for each shape and bucket of row counts, and never one that sums in another type than
// f32. Products are not promised to be the same for other row counts. Owned by CudaBackend.
// Thread-compatible.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_stream.h"

namespace coppice::kernels::cuda {

// y[rows, outputs] = x[rows, inputs] w[outputs, inputs]^T, row-major; with accumulate y += it. All in
// device memory. x has the type of w; y may be f32 besides.
struct MatMulArgs {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  DType type = DType::kF32;    // of w and x
  DType y_type = DType::kF32;  // f32 or `type`
  int64_t rows = 0, inputs = 0, outputs = 0;
  bool accumulate = false;

  bool operator==(const MatMulArgs&) const = default;
};

class CublasMatMul {
 public:
  // *stream must outlive the result.
  static absl::StatusOr<std::unique_ptr<CublasMatMul>> Create(DeviceStream* stream);
  CublasMatMul(const CublasMatMul&) = delete;
  CublasMatMul& operator=(const CublasMatMul&) = delete;
  ~CublasMatMul();

  // Enqueues the product. Internal names the shape that cuBLASLt does not take.
  absl::Status Enqueue(const MatMulArgs& args);

 private:
  // outputs, inputs, rows or their bucket, types, accumulate.
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool>;
  struct Layouts;

  explicit CublasMatMul(DeviceStream* stream) : stream_(stream) {}
  absl::StatusOr<const cublasLtMatmulAlgo_t*> Algorithm(const MatMulArgs& args);
  absl::Status Choose(const MatMulArgs& args, int64_t rows, cublasLtMatmulAlgo_t* algorithm);

  DeviceStream* const stream_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<Key, cublasLtMatmulAlgo_t> by_bucket_, by_rows_;
};

}  // namespace coppice::kernels::cuda
