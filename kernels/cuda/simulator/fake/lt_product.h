// A product as cuBLASLt is asked for it, and its arithmetic: column-major, naive, with sums in f32.
// For cublaslt.cc.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace coppice::kernels::cuda::fake {

// The contents of the opaque descriptors.
struct LayoutFields {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;  // elements from one column to the next
};
struct ProductFields {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a, transpose_b;
};

// From the first byte to the last.
size_t Span(const LayoutFields& layout);

struct Product {
  ProductFields fields;
  LayoutFields a, b, c, d;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  void* d_data = nullptr;
  float alpha = 0, beta = 0;
  int32_t algorithm = 0;

  // Where sums are cut: an algorithm has its own order for each number of columns (rows of the
  // step), as the library's tiles and split-K have.
  size_t Cut() const { return depth() * ((3 * algorithm + d.columns) % 13 + 1) / 16; }
  uint64_t depth() const { return fields.transpose_a == CUBLAS_OP_T ? a.rows : a.columns; }

  int64_t Bytes() const;        // each operand once
  int64_t WeightBytes() const;  // of a, the weights in products of matrix_products.h
  // d = alpha op(a) op(b) + beta c.
  void Run() const;

 private:
  void Store(size_t index, float value) const;
};

// Whether the library takes these shapes and types.
cublasStatus_t Check(const Product& product);

}  // namespace coppice::kernels::cuda::fake
