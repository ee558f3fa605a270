# All third-party libraries. They come from Debian 12 packages, which deploy/setup.sh lists.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenMP REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(spdlog REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(benchmark REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)  # headers alone: base/config_file.cc compiles the parser

# The CUDA backend (kernels/cuda, behind kernels/backend.h) is built in one of two ways: for a device, or for tests that need no
# device. For those, the kernels run on the CPU and only the toolkit's headers are used.
option(COPPICE_CUDA "the CUDA backend" OFF)
option(COPPICE_CUDA_SIM "the CUDA backend over a simulated device" OFF)
if(COPPICE_CUDA AND COPPICE_CUDA_SIM)
  message(FATAL_ERROR "COPPICE_CUDA and COPPICE_CUDA_SIM exclude each other")
endif()
if(COPPICE_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
endif()
