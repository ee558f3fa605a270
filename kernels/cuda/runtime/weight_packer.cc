#include "kernels/cuda/runtime/weight_packer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/matrix_source.h"

namespace coppice::kernels::cuda {

bool WeightPacker::Stores(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         IsDeviceBlocks(dtype);
}

absl::StatusOr<std::unique_ptr<Weight>> WeightPacker::Pack(absl::Span<const MatrixSource> stacked,
                                                           DType dtype,
                                                           const std::vector<float>& bias) {
  if (!Stores(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pack: the CUDA backend stores weights as F32, BF16, F16, Q8_0 or Q4_0, not as ",
        DTypeName(dtype)));
  }
  if (IsDeviceBlocks(dtype)) return PackBlocks(stacked, dtype, bias);
  if (activations_.has_value() && dtype != *activations_) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: ", DTypeName(dtype), " after ", DTypeName(*activations_),
                     ": the CUDA backend keeps all matrices that are not in blocks in one type"));
  }
  COPPICE_ASSIGN_OR_RETURN(std::unique_ptr<Weight> matrix, loader_->Pack(stacked, dtype, bias));
  activations_ = dtype;
  return matrix;
}

absl::StatusOr<std::unique_ptr<Weight>> WeightPacker::PackBlocks(
    absl::Span<const MatrixSource> stacked, DType dtype, const std::vector<float>& bias) {
  const DType values = activations_.value_or(DType::kBF16);
  if (values == DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: ", DTypeName(dtype), " after F32: blocks need BF16 or F16"));
  }
  COPPICE_ASSIGN_OR_RETURN(std::unique_ptr<Weight> matrix,
                           loader_->PackBlocks(stacked, dtype, values, bias));
  activations_ = values;
  return matrix;
}

// A stack is in one type: of Q4_0 and Q8_0 the latter, which holds the values of both; of blocks and
// another type that one, in which products have the values of blocks.
absl::StatusOr<std::unique_ptr<Weight>> WeightPacker::PackEach(
    absl::Span<const MatrixSource> stacked, absl::Span<const DType> dtypes,
    const std::vector<float>& bias) {
  COPPICE_RETURN_IF_ERROR(CheckTypes(stacked, dtypes));
  DType all = dtypes[0];
  for (const DType dtype : dtypes) {
    if (dtype == all) continue;
    if (IsDeviceBlocks(dtype) && IsDeviceBlocks(all)) {
      all = DType::kQ8_0;
    } else if (IsDeviceBlocks(all)) {
      all = dtype;
    } else if (!IsDeviceBlocks(dtype)) {
      return absl::UnimplementedError(absl::StrCat("pack: the cuda backend stacks no ",
                                                   DTypeName(dtype), " on ", DTypeName(all)));
    }
  }
  return Pack(stacked, all, bias);
}

}  // namespace coppice::kernels::cuda
