// The matrix products of steps: each by the algorithm that was measured to be the fastest for its
// shape and bucket of rows (product_tuner.h), or else by the first that cuBLASLt proposes. Rows are
// padded to the bucket (row_bucket.h), so the bits of a row depend on the bucket alone, not on how
// many rows of it are used. In exact mode they do not depend on the bucket either; nor do those of
// products with weights in blocks, in any mode. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/ops/row_product.h"
#include "kernels/cuda/products/cublas_matmul.h"
#include "kernels/cuda/products/product_table.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class MatrixProducts {
 public:
  // *stream must outlive the result. exact: every product is one of row_product.h or
  // block_product.h. clusters: the device has clusters of blocks.
  static absl::StatusOr<std::unique_ptr<MatrixProducts>> Create(DeviceStream* stream,
                                                                bool exact = false,
                                                                bool clusters = false);

  // The product as the table knows it, its rows padded.
  static ProductKey KeyOf(const MatMulArgs& args);
  // Enqueues the product. What the choice of tuning, or every proposal of cuBLASLt, refuses goes by
  // RowChoice from then on, after a warning. Errors name its shape.
  absl::Status Enqueue(const MatMulArgs& args);

  // ---- for tuning
  // The product of row_product.h, which takes every shape and type.
  static ProductChoice RowChoice();
  // The choices to try for a product, cuBLASLt's first proposal first; maybe none.
  absl::StatusOr<std::vector<ProductChoice>> Candidates(const ProductKey& key);
  // Whether a choice, for example from a file, can be used here.
  bool Takes(const ProductKey& key, const ProductChoice& choice);
  absl::Status Enqueue(const MatMulArgs& args, const ProductChoice& choice);
  // From now on these products use these choices, which must be usable here.
  void Use(const ProductTable& table);
  // As in TuningPlace.
  size_t workspace_bytes() const { return library_->workspace().size(); }
  bool exact() const { return exact_; }

 private:
  MatrixProducts(DeviceStream* stream, bool exact, bool clusters)
      : stream_(stream), exact_(exact), clusters_(clusters) {}
  // Enqueues the first proposal of cuBLASLt that it takes, or RowChoice, and keeps it for the key.
  absl::Status EnqueueFirstTaken(const MatMulArgs& args, const ProductKey& key);
  // Enqueues SwiGLU after a product that has left it out.
  absl::Status EnqueueGate(const MatMulArgs& args, const ProductKey& key);
  RowProductArgs RowArgs(const MatMulArgs& args) const;
  absl::Status EnqueueBlocks(const MatMulArgs& args, const ProductKey& key);
  bool TakesSkinny(const ProductKey& key, int splits) const;
  // Once a launch of clusters has failed, warns and uses none: the bits are the same.
  absl::Status EnqueueSkinny(const MatMulArgs& args, int splits, const ProductKey& key);

  DeviceStream* const stream_;
  const bool exact_;
  bool clusters_;
  std::unique_ptr<CublasMatMul> library_;
  DeviceBuffer counters_;  // counters of our own kernels: zero between launches
  ProductTable chosen_;
};

}  // namespace coppice::kernels::cuda
