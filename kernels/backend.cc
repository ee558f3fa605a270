#include "kernels/backend.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"

namespace coppice {

size_t DTypeSize(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return "?";
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind, int threads) {
  if (threads < 0) {
    return absl::InvalidArgumentError(absl::StrCat("backend threads must be >= 0, got ", threads));
  }
  if (kind == "cpu") return cpu::MakeCpuBackend(threads);
  if (kind == "cuda") return absl::UnimplementedError("this build has no CUDA backend");
  return absl::InvalidArgumentError(
      absl::StrCat("backend must be cpu or cuda, got \"", kind, "\""));
}

}  // namespace coppice
