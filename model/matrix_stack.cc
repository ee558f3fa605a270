#include "model/matrix_stack.h"

#include <algorithm>
#include <utility>

#include "kernels/block_format.h"
#include "kernels/matrix_source.h"

namespace coppice::model {

using kernels::DType;
using kernels::MatrixSource;

bool MatrixStack::Keeps(DType dtype) const {
  return keeps_blocks_ && kernels::IsBlockFormat(dtype) && backend_->stores(dtype);
}

void MatrixStack::Add(const MatrixSource& part) {
  dtypes_.push_back(Keeps(part.dtype) ? part.dtype : dtype_);
  parts_.push_back(part);
}

void MatrixStack::AddRows(const MatrixSource& source, int64_t begin, int64_t end) {
  Add(kernels::RowsOf(source, begin, end));
}

void MatrixStack::AddColumns(const MatrixSource& source, int64_t begin, int64_t end) {
  const auto whole = kernels::ColumnsOf(source, begin, end);
  Add(whole.ok() ? *whole : InF32(source, begin, end));
}

MatrixSource MatrixStack::InF32(const MatrixSource& source, int64_t begin, int64_t end) {
  const int64_t columns = end - begin;
  std::vector<float>& values = decoded_.emplace_back(source.rows * columns);
  std::vector<float> row(source.columns);
  for (int64_t r = 0; r < source.rows; ++r) {
    kernels::ConvertRow(source, r, DType::kF32, row.data());
    std::copy_n(row.begin() + begin, columns, values.begin() + r * columns);
  }
  return {values.data(), DType::kF32, source.rows, columns, columns};
}

absl::StatusOr<std::unique_ptr<kernels::Weight>> MatrixStack::Pack(std::vector<float> bias) {
  return backend_->PackEach(parts_, dtypes_, std::move(bias));
}

}  // namespace coppice::model
