#include "kernels/cuda/cublas_matmul.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/row_bucket.h"

namespace coppice::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr char kWorkspaceName[] = "the workspace of cuBLASLt";

cudaDataType_t CudaType(DType type) {
  if (type == DType::kF32) return CUDA_R_32F;
  return type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

absl::Status Failed(cublasStatus_t status, absl::string_view call, const MatMulArgs& args) {
  return CublasStatus(
      status, call,
      absl::StrCat("a product of ", args.rows, " rows by ", args.outputs, " x ", args.inputs, " ",
                   DTypeName(args.type), " to ", DTypeName(args.y_type)));
}

}  // namespace

// The library counts column by column: there w is [inputs, outputs] and is transposed, x is [inputs,
// rows] and y is [outputs, rows].
struct CublasMatMul::Layouts {
  static absl::Status Make(const MatMulArgs& args, int64_t rows, Layouts* out) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cudaDataType_t type = CudaType(args.type), y_type = CudaType(args.y_type);
    cublasStatus_t status = cublasLtMatmulDescInit(&out->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatmulDescInit", args);
    status = cublasLtMatmulDescSetAttribute(&out->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed);
    if (status != CUBLAS_STATUS_SUCCESS)
      return Failed(status, "cublasLtMatmulDescSetAttribute", args);
    status = cublasLtMatrixLayoutInit(&out->w, type, args.inputs, args.outputs, args.inputs);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutInit(&out->x, type, args.inputs, rows, args.inputs);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutInit(&out->y, y_type, args.outputs, rows, args.outputs);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatrixLayoutInit", args);
    return absl::OkStatus();
  }

  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t w, x, y;
};

absl::StatusOr<std::unique_ptr<CublasMatMul>> CublasMatMul::Create(DeviceStream* stream) {
  std::unique_ptr<CublasMatMul> made(new CublasMatMul(stream));
  COPPICE_RETURN_IF_ERROR(
      CublasStatus(cublasLtCreate(&made->handle_), "cublasLtCreate", "the matrix products"));
  COPPICE_ASSIGN_OR_RETURN(made->workspace_,
                           DeviceBuffer::Allocate(kWorkspaceBytes, kWorkspaceName));
  return made;
}

CublasMatMul::~CublasMatMul() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::Status CublasMatMul::Enqueue(const MatMulArgs& args) {
  COPPICE_CHECK(args.rows > 0 && args.inputs > 0 && args.outputs > 0);
  COPPICE_CHECK(args.y_type == args.type || args.y_type == DType::kF32);
  Layouts layouts;
  COPPICE_RETURN_IF_ERROR(Layouts::Make(args, args.rows, &layouts));
  COPPICE_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t* algorithm, Algorithm(args));
  const float one = 1, beta = args.accumulate ? 1 : 0;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, &layouts.product, &one, args.w, &layouts.w, args.x, &layouts.x, &beta,
                     args.y, &layouts.y, args.y, &layouts.y, algorithm, workspace_.data(),
                     workspace_.size(), stream_->get());
  return status == CUBLAS_STATUS_SUCCESS ? absl::OkStatus()
                                         : Failed(status, "cublasLtMatmul", args);
}

// That of the bucket, where the library takes it for this row count; else one of its own.
absl::StatusOr<const cublasLtMatmulAlgo_t*> CublasMatMul::Algorithm(const MatMulArgs& args) {
  const auto key = [&](int64_t rows) {
    return Key{args.outputs, args.inputs, rows, args.type, args.y_type, args.accumulate};
  };
  const auto known = by_rows_.find(key(args.rows));
  if (known != by_rows_.end()) return &known->second;

  const int64_t bucket = RowBucket(args.rows);
  cublasLtMatmulAlgo_t algorithm;
  const auto chosen = by_bucket_.find(key(bucket));
  if (chosen == by_bucket_.end()) {
    COPPICE_RETURN_IF_ERROR(Choose(args, bucket, &algorithm));
    by_bucket_[key(bucket)] = algorithm;
  } else {
    algorithm = chosen->second;
  }
  Layouts layouts;
  COPPICE_RETURN_IF_ERROR(Layouts::Make(args, args.rows, &layouts));
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t fits =
      cublasLtMatmulAlgoCheck(handle_, &layouts.product, &layouts.w, &layouts.x, &layouts.y,
                              &layouts.y, &algorithm, &result);
  if (fits != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) {
    cudaGetLastError();  // a refusal would be taken for the error of the next launch
    COPPICE_RETURN_IF_ERROR(Choose(args, args.rows, &algorithm));
  }
  return &(by_rows_[key(args.rows)] = algorithm);
}

absl::Status CublasMatMul::Choose(const MatMulArgs& args, int64_t rows,
                                  cublasLtMatmulAlgo_t* algorithm) {
  Layouts layouts;
  COPPICE_RETURN_IF_ERROR(Layouts::Make(args, rows, &layouts));
  const uint64_t workspace = kWorkspaceBytes;
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasStatus_t status = cublasLtMatmulPreferenceInit(&preference);
  if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatmulPreferenceInit", args);
  status = cublasLtMatmulPreferenceSetAttribute(
      &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmulPreferenceSetAttribute(
        &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
  }
  if (status != CUBLAS_STATUS_SUCCESS)
    return Failed(status, "cublasLtMatmulPreferenceSetAttribute", args);
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  status = cublasLtMatmulAlgoGetHeuristic(handle_, &layouts.product, &layouts.w, &layouts.x,
                                          &layouts.y, &layouts.y, &preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_SUCCESS && found == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (status == CUBLAS_STATUS_SUCCESS) status = result.state;
  if (status != CUBLAS_STATUS_SUCCESS)
    return Failed(status, "cublasLtMatmulAlgoGetHeuristic", args);
  *algorithm = result.algo;
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
