# Every third-party library, from Debian 12 packages (deploy/setup.sh lists them).
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(GTest REQUIRED)
find_package(OpenMP REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(spdlog REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(benchmark REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

# The seam of the CUDA build: kernels/cuda (behind kernels/backend.h) and the NCCL communicator add their sources where this is
# on. They are not written yet, so the preset proves the toolkit and builds the CPU backend alone.
option(COPPICE_CUDA "find the CUDA toolkit for the CUDA backend" OFF)
if(COPPICE_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found; this tree has no CUDA backend yet, only the CPU backend is built")
endif()
