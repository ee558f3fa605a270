#include "kernels/backend.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/block_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/matrix_source.h"

#ifdef COPPICE_HAS_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace coppice::kernels {

size_t DTypeSize(DType dtype) {
  COPPICE_CHECK_MSG(!IsBlockFormat(dtype),
                    absl::StrCat("values of ", DTypeName(dtype), " share bytes"));
  return dtype == DType::kF32 ? 4 : dtype == DType::kI8 ? 1 : 2;
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI8:
      return "I8";
    default:
      return FormatOf(dtype).name;
  }
}

absl::StatusOr<std::unique_ptr<Weight>> Backend::PackEach(absl::Span<const MatrixSource> stacked,
                                                          absl::Span<const DType> dtypes,
                                                          std::vector<float> bias) {
  COPPICE_RETURN_IF_ERROR(CheckTypes(stacked, dtypes));
  for (const DType dtype : dtypes) {
    if (dtype != dtypes[0]) {
      return absl::UnimplementedError(absl::StrCat("pack: the ", name(), " backend stacks no ",
                                                   DTypeName(dtype), " on ", DTypeName(dtypes[0])));
    }
  }
  return Pack(stacked, dtypes[0], std::move(bias));
}

absl::Status Backend::ReadStates(const KvPool&, absl::Span<const int32_t>, uint16_t*) {
  return absl::UnimplementedError(absl::StrCat("the ", name(), " backend keeps no states"));
}

absl::Status Backend::SubmitForests(const ForestPlan&, Pass*) {
  return absl::UnimplementedError(absl::StrCat("the ", name(), " backend does not grow forests"));
}

absl::StatusOr<std::vector<GrownForest>> Backend::WaitForests() {
  return absl::UnimplementedError(absl::StrCat("the ", name(), " backend does not grow forests"));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.kind == "cpu") {
    const std::string& sums = options.collectives.kind;
    if (sums != "nccl" && sums != "oneshot") return cpu::MakeCpuBackend(options);
    return absl::InvalidArgumentError(absl::StrCat(
        "--communicator=", sums, ": ", sums == "nccl" ? "NCCL is" : "one-shot sums are",
        " for GPUs; the ranks of the CPU backend take auto, shm or mpi"));
  }
  if (options.kind == "cuda") {
#ifdef COPPICE_HAS_CUDA
    return cuda::MakeCudaBackend(options);
#else
    return absl::UnimplementedError(
        "this build has no CUDA backend; one that has is built with: deploy/build.sh cuda");
#endif
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend must be cpu or cuda, got \"", options.kind, "\""));
}

}  // namespace coppice::kernels
