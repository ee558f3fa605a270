#include "kernels/cuda/device/hopper.h"
#include "tests/kernels/cuda/device_probe.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kMostRows = 128;  // of 128 bytes in shared memory

DEV_FUNCTION unsigned char* Aligned(unsigned char* memory) {
  return memory + (1024 - dev::SharedAddress(memory) % 1024) % 1024;
}

template <class T, bool kTransposed, int kEights>
DEV_KERNEL void MmaAsyncOf(int step, bool add, const uint32_t* a, const uint16_t* b, float* d) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(unsigned char, memory);
  unsigned char* const matrix = Aligned(memory);
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kRows = kEights * 8;  // of shared memory, in both forms: 64 or 128
  for (int i = thread; i < kRows * 64; i += 128) {
    const int row = i / 64, byte = i % 64 * 2;
    *reinterpret_cast<uint16_t*>(matrix + row * 128 + (byte / 16 ^ row % 8) * 16 + byte % 16) =
        b[i];
  }
  dev::ShowToAsync();
  __syncthreads();
  uint32_t of_a[4];
  float of_d[kEights][4];
  for (int i = 0; i < 4; ++i) of_a[i] = a[thread * 4 + i];
  DEV_UNROLL
  for (int i = 0; i < kEights * 4; ++i) of_d[i / 4][i % 4] = d[thread * kEights * 4 + i];
  const unsigned char* const start = matrix + step * (kTransposed ? 16 * 128 : 32);
  dev::WarpgroupBegin(of_d);
  dev::MmaAsync<T, kTransposed>(of_d, of_a, dev::MatrixOf(start, kTransposed ? 64 * 128 : 0), add);
  dev::WarpgroupCommit();
  dev::WarpgroupWait<0>(of_d);
  DEV_UNROLL
  for (int i = 0; i < kEights * 4; ++i) d[thread * kEights * 4 + i] = of_d[i / 4][i % 4];
}

DEV_KERNEL void CopyBoxOf(int box_rows, int column, int row, uint16_t* out,
                          const DEV_GRID_CONSTANT dev::TensorMap map) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(unsigned char, memory);
  DEV_SHARED(uint64_t, barrier, 1);
  unsigned char* const box = Aligned(memory);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    dev::BarrierInit(barrier, 1);
    dev::BarriersReady();
  }
  __syncthreads();
  if (thread == 0) {
    dev::BarrierArriveExpecting(barrier, static_cast<uint32_t>(box_rows) * 128);
    dev::CopyBox(box, map, column, row, barrier);
  }
  dev::BarrierWait(barrier, 0);
  for (int i = thread; i < box_rows * 64; i += 64) out[i] = reinterpret_cast<uint16_t*>(box)[i];
}

DEV_KERNEL void Barriers(int rounds, uint32_t* out) {
  dev::WaitForPrevious();
  DEV_SHARED(uint64_t, barriers, 4);  // full of two places, then empty
  DEV_SHARED(uint32_t, ring, 2 * 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) dev::BarrierInit(barriers + i, 32);
    dev::BarriersReady();
  }
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int place = round % 2;
    const uint32_t parity = round / 2 % 2;
    if (threadIdx.x < 32) {
      dev::BarrierWait(barriers + 2 + place, parity ^ 1);
      ring[place * 32 + lane] = static_cast<uint32_t>(round * 32 + lane);
      dev::BarrierArrive(barriers + place);
    } else {
      dev::BarrierWait(barriers + place, parity);
      out[round * 32 + lane] = ring[place * 32 + (lane + 5) % 32];
      dev::BarrierArrive(barriers + 2 + place);
    }
  }
}

DEV_KERNEL void DEV_BOUNDS(384, 1) Registers(const float* values, float* out) {
  dev::WaitForPrevious();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= 256) {
    dev::GiveRegisters<72>();
    out[thread] = values[thread] + 1;
  } else {
    dev::TakeRegisters<216>();
    float held[100];
    DEV_UNROLL
    for (int i = 0; i < 100; ++i) held[i] = values[(thread * 7 + i) % 384];
    float sum = 0;
    DEV_UNROLL
    for (int i = 99; i >= 0; --i) sum = sum * 0.5f + held[i];
    out[thread] = sum;
  }
}

template <class T, bool kTransposed>
void LaunchMma(int eights, int step, bool add, const uint32_t* a, const uint16_t* b, float* d) {
  dev::Launch(eights == 8 ? MmaAsyncOf<T, kTransposed, 8> : MmaAsyncOf<T, kTransposed, 16>, dim3(1),
              dim3(128), kMostRows * 128 + 1024, nullptr, step, add, a, b, d);
}

}  // namespace

void ProbeMmaAsync(bool f16, bool transposed, int eights, int step, bool add, const uint32_t* a,
                   const uint16_t* b, float* d) {
  const auto launch = f16 ? (transposed ? LaunchMma<dev::f16, true> : LaunchMma<dev::f16, false>)
                          : (transposed ? LaunchMma<dev::bf16, true> : LaunchMma<dev::bf16, false>);
  launch(eights, step, add, a, b, d);
}
int ProbeCopyBox(const uint16_t* values, int rows, int columns, int box_rows, int column, int row,
                 uint16_t* out) {
  dev::TensorMap map;
  const cudaError_t error = dev::MakeTensorMap(values, true, rows, columns, box_rows, &map);
  if (error != cudaSuccess) return error;
  dev::Launch(CopyBoxOf, dim3(1), dim3(64), static_cast<size_t>(box_rows) * 128 + 1024, nullptr,
              box_rows, column, row, out, map);
  return cudaSuccess;
}
void ProbeBarriers(int rounds, uint32_t* out) {
  dev::Launch(Barriers, dim3(1), dim3(64), 0, nullptr, rounds, out);
}
void ProbeRegisters(const float* values, float* out) {
  dev::Launch(Registers, dim3(1), dim3(384), 0, nullptr, values, out);
}

}  // namespace coppice::kernels::cuda
