// Prints the CUDA version that the driver of this machine serves, as the driver says it: 12020 for
// 12.2. It needs no library of CUDA: deploy/gpu_check.sh chooses by it which programs to run.
#include <dlfcn.h>

#include <cstdio>

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::fprintf(stderr, "coppice-cuda-driver: %s\n", dlerror());
    return 1;
  }
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0 || version <= 0) {
    std::fprintf(stderr, "coppice-cuda-driver: libcuda.so.1 does not say its version\n");
    return 1;
  }
  std::printf("%d\n", version);
  return 0;
}
