// The parts of one weight (q, k and v; gate and up; a part of the columns), cut from a checkpoint
// and packed as one. Called by weights.cc. Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace coppice::model {

class MatrixStack {
 public:
  // dtype: that of the packed weight. keeps_blocks: a part in a block format is packed in its own
  // format instead, if the backend stores it.
  MatrixStack(kernels::Backend* backend, kernels::DType dtype, bool keeps_blocks)
      : backend_(backend), dtype_(dtype), keeps_blocks_(keeps_blocks) {}

  // Rows or columns [begin, end) of the source, whose data must be there until Pack. Columns that
  // cut a block are made in f32.
  void AddRows(const kernels::MatrixSource& source, int64_t begin, int64_t end);
  void AddColumns(const kernels::MatrixSource& source, int64_t begin, int64_t end);
  // As Backend::Pack.
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Pack(std::vector<float> bias);

 private:
  bool Keeps(kernels::DType dtype) const;
  void Add(const kernels::MatrixSource& part);
  // Columns [begin, end) in f32, in memory of this object.
  kernels::MatrixSource InF32(const kernels::MatrixSource& source, int64_t begin, int64_t end);

  kernels::Backend* backend_;
  kernels::DType dtype_;
  bool keeps_blocks_;
  std::vector<kernels::MatrixSource> parts_;
  std::vector<kernels::DType> dtypes_;      // of the packed parts
  std::deque<std::vector<float>> decoded_;  // data of parts
};

}  // namespace coppice::model
