#include "kernels/cuda/products/cublas_matmul.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint64_t kBufferAlignment = 256;  // bytes, of every buffer; the library's default
constexpr char kWorkspaceName[] = "the workspace of cuBLASLt";
constexpr uint32_t kReductions =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

cudaDataType_t CudaType(DType type) {
  if (type == DType::kF32) return CUDA_R_32F;
  return type == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

absl::Status Failed(cublasStatus_t status, absl::string_view call, const ProductKey& key) {
  return CublasStatus(status, call, absl::StrCat("a product of ", ProductName(key)));
}

cublasLtMatmulAlgo_t Opaque(const CublasMatMul::Algorithm& algorithm) {
  static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(CublasMatMul::Algorithm));
  return std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
}

absl::StatusOr<bool> SumsInF32(const cublasLtMatmulAlgo_t& algorithm, const ProductKey& key) {
  uint32_t scheme = 0;
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written);
  if (status != CUBLAS_STATUS_SUCCESS)
    return Failed(status, "cublasLtMatmulAlgoConfigGetAttribute", key);
  return (scheme & ~kReductions) == 0;
}

// Alignment of the rows of a matrix in a buffer, at most that of buffers, in bytes.
uint32_t RowAlignment(int64_t columns, DType type) {
  const auto bytes = static_cast<uint64_t>(columns) * DTypeSize(type);
  return static_cast<uint32_t>(std::min(bytes & (~bytes + 1), kBufferAlignment));
}

absl::Status Set(cublasLtMatmulPreferenceOpaque_t* preference,
                 cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t size,
                 const ProductKey& key) {
  const cublasStatus_t status =
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size);
  return status == CUBLAS_STATUS_SUCCESS
             ? absl::OkStatus()
             : Failed(status, "cublasLtMatmulPreferenceSetAttribute", key);
}

// of_rows: the alignment to count on is that of each matrix's rows; else that of buffers, which is
// what the library expects unless told.
absl::Status MakePreference(const ProductKey& key, bool of_rows,
                            cublasLtMatmulPreferenceOpaque_t* preference) {
  const uint64_t workspace = kWorkspaceBytes;
  const cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
  if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatmulPreferenceInit", key);
  COPPICE_RETURN_IF_ERROR(
      Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace, key));
  COPPICE_RETURN_IF_ERROR(Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kReductions,
                              sizeof kReductions, key));
  if (!of_rows) return absl::OkStatus();
  const uint32_t of_inputs = RowAlignment(key.inputs, key.type);
  const uint32_t of_outputs = RowAlignment(key.outputs, key.y_type);
  for (const auto& [attribute, bytes] :
       {std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_inputs),
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_inputs},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_outputs},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_outputs}}) {
    COPPICE_RETURN_IF_ERROR(Set(preference, attribute, &bytes, sizeof bytes, key));
  }
  return absl::OkStatus();
}

}  // namespace

// The library counts column by column: there w is [inputs, outputs] and is transposed, x is
// [inputs, rows] and y is [outputs, rows].
struct CublasMatMul::Layouts {
  static absl::Status Make(const ProductKey& key, Layouts* out) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cudaDataType_t type = CudaType(key.type), y_type = CudaType(key.y_type);
    cublasStatus_t status = cublasLtMatmulDescInit(&out->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatmulDescInit", key);
    status = cublasLtMatmulDescSetAttribute(&out->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed);
    if (status != CUBLAS_STATUS_SUCCESS)
      return Failed(status, "cublasLtMatmulDescSetAttribute", key);
    status = cublasLtMatrixLayoutInit(&out->w, type, key.inputs, key.outputs, key.inputs);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutInit(&out->x, type, key.inputs, key.rows, key.inputs);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatrixLayoutInit(&out->y, y_type, key.outputs, key.rows, key.outputs);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatrixLayoutInit", key);
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

uint64_t CublasMatMul::version() { return cublasLtGetVersion(); }

absl::StatusOr<std::vector<CublasMatMul::Algorithm>> CublasMatMul::Propose(const ProductKey& key,
                                                                           int count) {
  absl::StatusOr<std::vector<Algorithm>> proposed = Ask(key, count, /*of_rows=*/false);
  const bool odd = RowAlignment(key.inputs, key.type) < kBufferAlignment ||
                   RowAlignment(key.outputs, key.y_type) < kBufferAlignment;
  if (!odd || !absl::IsUnimplemented(proposed.status())) return proposed;
  proposed = Ask(key, count, /*of_rows=*/true);
  if (proposed.ok()) {
    spdlog::info("cuBLASLt proposes algorithms for {} once it counts on less alignment",
                 ProductName(key));
  }
  return proposed;
}

absl::StatusOr<std::vector<CublasMatMul::Algorithm>> CublasMatMul::Ask(const ProductKey& key,
                                                                       int count, bool of_rows) {
  Layouts layouts;
  COPPICE_RETURN_IF_ERROR(Layouts::Make(key, &layouts));
  cublasLtMatmulPreferenceOpaque_t preference;
  COPPICE_RETURN_IF_ERROR(MakePreference(key, of_rows, &preference));
  std::vector<cublasLtMatmulHeuristicResult_t> results(count);
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, &layouts.product, &layouts.w, &layouts.x, &layouts.y,
                                     &layouts.y, &preference, count, results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return Failed(status, "cublasLtMatmulAlgoGetHeuristic", key);
  std::vector<Algorithm> proposed;
  absl::Status unreadable;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i];
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes) continue;
    const absl::StatusOr<bool> sums_in_f32 = SumsInF32(result.algo, key);
    unreadable.Update(sums_in_f32.status());
    if (sums_in_f32.value_or(false)) proposed.push_back(std::bit_cast<Algorithm>(result.algo));
  }
  if (proposed.empty() && !unreadable.ok()) return unreadable;
  if (proposed.empty())
    return Failed(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", key);
  return proposed;
}

bool CublasMatMul::Takes(const ProductKey& key, const Algorithm& algorithm) {
  Layouts layouts;
  if (!Layouts::Make(key, &layouts).ok()) return false;
  const cublasLtMatmulAlgo_t opaque = Opaque(algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_, &layouts.product, &layouts.w, &layouts.x, &layouts.y, &layouts.y, &opaque, &result);
  cudaGetLastError();  // a refusal would be taken for the error of the next launch
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes &&
         SumsInF32(opaque, key).value_or(false);
}

absl::Status CublasMatMul::Enqueue(const MatMulArgs& args, const ProductKey& key,
                                   const Algorithm& algorithm) {
  Layouts layouts;
  COPPICE_RETURN_IF_ERROR(Layouts::Make(key, &layouts));
  const cublasLtMatmulAlgo_t opaque = Opaque(algorithm);
  const float one = 1, beta = args.accumulate ? 1 : 0;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, &layouts.product, &one, args.w, &layouts.w, args.x, &layouts.x, &beta,
                     args.y, &layouts.y, args.y, &layouts.y, &opaque, workspace_.data(),
                     workspace_.size(), stream_->get());
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const absl::Status failed = Failed(status, "cublasLtMatmul", key);
  const bool refused =
      status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_ARCH_MISMATCH;
  return refused ? absl::UnimplementedError(failed.message()) : failed;
}

}  // namespace coppice::kernels::cuda
