#include "kernels/cuda/runtime/device_check.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {
namespace {

// CMakeLists.txt beside this file: kernels of a build run on devices of the same major version.
constexpr int kLeastMajor = 8, kLargestMajor = 9;
constexpr char kWhat[] = "the CUDA backend";

std::string VersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Whether processes share the device by MPS instead of taking turns. Runtimes before 13 do not tell:
// then whether its control daemon has its pipe where it is looked for.
bool UsesMps(const cudaDeviceProp& device) {
#if CUDART_VERSION >= 13000
  return device.mpsEnabled != 0;
#else
  static_cast<void>(device);
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipe = absl::StrCat(folder == nullptr ? "/tmp/nvidia-mps" : folder, "/control");
  return access(pipe.c_str(), F_OK) == 0;
#endif
}

absl::Status DriverTooOld() {
  int driver = 0, runtime = 0;
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return absl::FailedPreconditionError(
        "the CUDA backend needs an NVIDIA driver, and this machine has none (libcuda.so.1)");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the NVIDIA driver of this machine is too old: it serves CUDA ",
                   VersionName(driver), ", this build needs ", VersionName(runtime)));
}

}  // namespace

absl::StatusOr<DeviceFacts> UseDevice(int place) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver) return DriverTooOld();
  if (error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0)) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        "the CUDA backend finds no device: see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  COPPICE_RETURN_IF_ERROR(CudaStatus(error, "cudaGetDeviceCount", kWhat));
  const int number = place % devices;
  cudaDeviceProp device;
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&device, number), "cudaGetDeviceProperties", kWhat));
  if (device.major < kLeastMajor) {
    return absl::FailedPreconditionError(absl::StrCat("the CUDA backend needs compute capability ",
                                                      kLeastMajor, ".0, ", device.name, " has ",
                                                      device.major, ".", device.minor));
  }
  if (device.major > kLargestMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("this build has kernels for compute capability ", kLeastMajor, ".0 to ",
                     kLargestMajor, ".x, ", device.name, " has ", device.major, ".", device.minor));
  }
  COPPICE_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(number), "cudaSetDevice", kWhat));
  const size_t gib = (device.totalGlobalMem + (size_t{1} << 29)) >> 30;
  DeviceFacts facts;
  facts.description = absl::StrCat(device.name, ", ", gib, " GiB");
  if (devices > 1) absl::StrAppend(&facts.description, ", device ", number, " of ", devices);
  if (UsesMps(device)) absl::StrAppend(&facts.description, ", by MPS");
  facts.pci_bus_id =
      absl::StrFormat("%04x:%02x:%02x.0", device.pciDomainID, device.pciBusID, device.pciDeviceID);
  facts.multiprocessors = device.multiProcessorCount;
  facts.shared_bytes = static_cast<int64_t>(device.sharedMemPerMultiprocessor);
  facts.block_shared_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin);
  facts.overlaps_launches = device.major >= 9;
  facts.has_clusters = device.major >= 9;
  facts.has_wgmma = device.major == 9 && device.minor == 0;
  facts.name = device.name;
  facts.l2_bytes = static_cast<size_t>(device.l2CacheSize);
  std::memcpy(facts.uuid.data(), device.uuid.bytes, facts.uuid.size());
  return facts;
}

absl::StatusOr<MemoryFacts> DeviceMemory() {
  size_t free = 0, total = 0;
  COPPICE_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", kWhat));
  return MemoryFacts{static_cast<int64_t>(free), static_cast<int64_t>(total), /*of_device=*/true};
}

}  // namespace coppice::kernels::cuda
