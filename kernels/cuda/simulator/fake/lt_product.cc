#include "kernels/cuda/simulator/fake/lt_product.h"

#include <vector>

#include "kernels/element.h"

namespace coppice::kernels::cuda::fake {
namespace {

size_t SizeOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

float Load(const void* data, cudaDataType type, size_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == CUDA_R_16BF ? Bf16ToFloat(bits) : F16ToFloat(bits);
}

// The column of op(matrix) as floats.
void LoadColumn(const void* data, const LayoutFields& layout, bool transposed, size_t column,
                std::vector<float>* out) {
  for (size_t i = 0; i < out->size(); ++i) {
    const size_t index = transposed ? i * layout.leading + column : column * layout.leading + i;
    (*out)[i] = Load(data, layout.type, index);
  }
}

float DotOf(const float* a, const float* b, size_t size) {
  constexpr size_t kLanes = 8;
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < size; ++i) sums[i % kLanes] += a[i] * b[i];
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

// In two parts, the first of which has `first` values.
float Dot(const std::vector<float>& a, const std::vector<float>& b, size_t first) {
  return DotOf(a.data(), b.data(), first) +
         DotOf(a.data() + first, b.data() + first, a.size() - first);
}

int64_t BytesOf(const LayoutFields& layout) {
  return static_cast<int64_t>(layout.rows * layout.columns * SizeOf(layout.type));
}

bool IsKnownType(cudaDataType type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

}  // namespace

size_t Span(const LayoutFields& layout) {
  return ((layout.columns - 1) * layout.leading + layout.rows) * SizeOf(layout.type);
}

int64_t Product::Bytes() const {
  return BytesOf(a) + BytesOf(b) + BytesOf(d) + (beta == 0 ? 0 : BytesOf(c));
}
int64_t Product::WeightBytes() const { return BytesOf(a); }

void Product::Run() const {
  std::vector<std::vector<float>> right(d.columns, std::vector<float>(depth()));
  for (size_t j = 0; j < d.columns; ++j)
    LoadColumn(b_data, b, fields.transpose_b == CUBLAS_OP_T, j, &right[j]);
  std::vector<float> left(depth());
  for (size_t i = 0; i < d.rows; ++i) {
    // Row i of op(a) is column i of its transpose.
    LoadColumn(a_data, a, fields.transpose_a != CUBLAS_OP_T, i, &left);
    for (size_t j = 0; j < d.columns; ++j) {
      float value = alpha * Dot(left, right[j], Cut());
      if (beta != 0) value += beta * Load(c_data, c.type, j * c.leading + i);
      Store(j * d.leading + i, value);
    }
  }
}

void Product::Store(size_t index, float value) const {
  if (d.type == CUDA_R_32F) {
    static_cast<float*>(d_data)[index] = value;
  } else {
    static_cast<uint16_t*>(d_data)[index] =
        d.type == CUDA_R_16BF ? FloatToBf16(value) : FloatToF16(value);
  }
}

cublasStatus_t Check(const Product& p) {
  for (const LayoutFields* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->rows == 0 || layout->columns == 0 ||
        layout->leading < static_cast<int64_t>(layout->rows))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (!IsKnownType(layout->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool ta = p.fields.transpose_a == CUBLAS_OP_T, tb = p.fields.transpose_b == CUBLAS_OP_T;
  const uint64_t depth_b = tb ? p.b.columns : p.b.rows;
  if ((ta ? p.a.columns : p.a.rows) != p.d.rows || (tb ? p.b.rows : p.b.columns) != p.d.columns ||
      p.depth() != depth_b || p.c.rows != p.d.rows || p.c.columns != p.d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.fields.compute != CUBLAS_COMPUTE_32F || p.fields.scale != CUDA_R_32F ||
      p.a.type != p.b.type || p.c.type != p.d.type ||
      (p.d.type != p.a.type && p.d.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace coppice::kernels::cuda::fake
