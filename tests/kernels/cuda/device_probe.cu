#include "kernels/cuda/device/device.h"
#include "tests/kernels/cuda/device_probe.h"

namespace coppice::kernels::cuda {
namespace {

template <class T>
DEV_KERNEL void MmaOf(const uint32_t* a, const uint32_t* b, float* d) {
  const unsigned lane = threadIdx.x;
  uint32_t of_a[4], of_b[2];
  float of_d[4];
  for (int i = 0; i < 4; ++i) of_a[i] = a[lane * 4 + i];
  for (int i = 0; i < 2; ++i) of_b[i] = b[lane * 2 + i];
  for (int i = 0; i < 4; ++i) of_d[i] = d[lane * 4 + i];
  dev::Mma<T>(of_d, of_a, of_b);
  for (int i = 0; i < 4; ++i) d[lane * 4 + i] = of_d[i];
}

DEV_KERNEL void LoadMatrix(const uint16_t* rows, const int32_t* order, bool transposed,
                           uint32_t* out) {
  DEV_SHARED(uint16_t, tile, 32 * 8);
  const unsigned lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) tile[lane * 8 + i] = rows[lane * 8 + i];
  __syncthreads();
  uint32_t got[4];
  if (transposed) {
    dev::LoadMatrix4Transposed(got, tile + order[lane] * 8);
  } else {
    dev::LoadMatrix4(got, tile + order[lane] * 8);
  }
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = got[i];
}

DEV_KERNEL void Copy(const uint32_t* first, const uint32_t* second, uint32_t valid, uint32_t* early,
                     uint32_t* late) {
  DEV_SHARED(uint32_t, tile, 32 * 8);
  const unsigned lane = threadIdx.x;
  uint32_t* mine = tile + lane * 8;
  const bool is_valid = (valid >> lane & 1) != 0;
  for (int i = 0; i < 8; ++i) mine[i] = 0xdeadbeefu;
  __syncthreads();  // orders this before the copies
  dev::CopyAsync16(mine, first + lane * 4, is_valid);
  dev::CopyCommit();
  dev::CopyAsync16(mine + 4, second + lane * 4, is_valid);
  dev::CopyCommit();
  dev::CopyWait<1>();
  for (int i = 0; i < 4; ++i) early[lane * 4 + i] = mine[i];
  dev::CopyWait<0>();
  __syncthreads();
  const uint32_t* other = tile + (lane + 1) % 32 * 8;  // copied by another lane
  for (int i = 0; i < 8; ++i) late[(lane + 1) % 32 * 8 + i] = other[i];
}

// Of each lane eight values, then four, then two, by one store each.
DEV_FUNCTION void StorePacks(const uint16_t* values, uint16_t* to) {
  const unsigned lane = threadIdx.x;
  dev::StorePack(to + lane * 8, dev::LoadPack<8>(values + lane * 8));
  dev::StorePack(to + 256 + lane * 4, dev::LoadPack<4>(values + 256 + lane * 4));
  dev::StorePack(to + 384 + lane * 2, dev::LoadPack<2>(values + 384 + lane * 2));
}
DEV_KERNEL void Stores(const uint16_t* values, uint16_t* global, uint16_t* shared) {
  DEV_SHARED(uint16_t, tile, kProbeStores);
  dev::WaitForPrevious();
  StorePacks(values, global);
  StorePacks(values, tile);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kProbeStores; i += dev::kWarpSize)
    shared[i] = tile[i];
}

DEV_KERNEL void Atomic(uint32_t* counter, uint32_t* before) {
  before[blockIdx.x * blockDim.x + threadIdx.x] = dev::AtomicAddAcqRel(counter, 1);
}

DEV_KERNEL void LastBlock(uint32_t* counter, uint32_t* values, uint32_t* sum) {
  DEV_SHARED(uint32_t, arrived, 1);
  const unsigned thread = threadIdx.x;
  values[blockIdx.x * blockDim.x + thread] = blockIdx.x * blockDim.x + thread + 1;
  __syncthreads();
  if (thread == 0) arrived[0] = dev::AtomicAddAcqRel(counter, 1);
  __syncthreads();
  if (arrived[0] + 1 != gridDim.x || thread != 0) return;
  uint32_t total = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) total += values[i];
  *sum = total;
}

// Two warps: the first writes and raises the flag, the second waits for it.
DEV_KERNEL void SystemFlag(uint64_t flag, uint64_t* place, uint32_t* words, uint32_t* seen,
                           uint64_t* clock) {
  dev::WaitForPrevious();
  if (threadIdx.x == 0) {
    clock[0] = dev::NanoSeconds();
    for (uint32_t i = 0; i < 64; ++i) words[i] = i + 1;
    dev::StoreRelaxedSystem(words + 64, 65);
    dev::StoreReleaseSystem(place, flag);
  }
  if (threadIdx.x != 32) return;
  while (dev::LoadAcquireSystem(place) != flag) {
  }
  for (uint32_t i = 0; i < 64; ++i) seen[i] = words[i];
  seen[64] = dev::LoadRelaxedSystem(words + 64);
  clock[1] = dev::NanoSeconds();
}

DEV_KERNEL void Values(int count, const float* x, float* exp2, uint32_t* bf16, uint32_t* f16) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  exp2[i] = dev::Exp2(x[i]);
  bf16[i] = dev::PackPair<dev::bf16>(x[i], -x[i]);
  f16[i] = dev::PackPair<dev::f16>(x[i], -x[i]);
}

DEV_KERNEL void HalfValues(int count, const uint16_t* bits, float* values) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  values[i] = dev::ToFloat(reinterpret_cast<const dev::f16*>(bits)[i]);
}

DEV_KERNEL void PickedBytes(int count, const uint32_t* a, const uint32_t* b, const uint32_t* which,
                            uint32_t* picked) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) picked[i] = dev::PickBytes(a[i], b[i], which[i]);
}

DEV_KERNEL void WriteLate(uint32_t seed, uint32_t* values) {
  dev::WaitForPrevious();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t x = i;
  for (int round = 0; round < 2000; ++round) x = x * 1664525u + 1013904223u;
  values[i] = x == 1 ? 0 : i + seed;
}

DEV_KERNEL void CopyAfterPrevious(const uint32_t* values, uint32_t* out) {
  dev::WaitForPrevious();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = values[gridDim.x * blockDim.x - 1 - i];  // of another block
}

DEV_KERNEL void Warp(const float* x, float* sum, float* max) {
  const float value = x[threadIdx.x];
  sum[threadIdx.x] = dev::WarpSum(value);
  max[threadIdx.x] = dev::WarpMax(value);
}

DEV_KERNEL void Cluster(uint32_t seed, float* out) {
  dev::WaitForPrevious();
  DEV_SHARED(float, numbers, 4);
  if constexpr (dev::kClusters) {
    const int rank = static_cast<int>(blockIdx.y), size = static_cast<int>(gridDim.y);
    if (threadIdx.x < 4) {
      numbers[threadIdx.x] =
          static_cast<float>(seed + blockIdx.x * 1000 + blockIdx.y * 4 + threadIdx.x);
    }
    dev::ClusterBarrier();
    for (int peer = static_cast<int>(threadIdx.x); peer < size; peer += 32) {
      float values[4];
      dev::LoadPeer4(values, numbers, peer);
      float* const to = out + ((static_cast<int>(blockIdx.x) * size + rank) * size + peer) * 4;
      for (int i = 0; i < 4; ++i) to[i] = values[i];
    }
    dev::ClusterBarrier();
  }
}

DEV_KERNEL void DynamicShared(int count, uint32_t seed, uint32_t* out) {
  DEV_DYNAMIC_SHARED(uint32_t, tile);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < count; i += threads) tile[i] = static_cast<uint32_t>(i) + seed;
  __syncthreads();
  for (int i = thread; i < count; i += threads) out[count - 1 - i] = tile[count - 1 - i];
}

}  // namespace

void ProbeMma(bool f16, const uint32_t* a, const uint32_t* b, float* d) {
  dev::Launch(f16 ? MmaOf<dev::f16> : MmaOf<dev::bf16>, dim3(1), dim3(32), 0, nullptr, a, b, d);
}
void ProbeLoadMatrix(const uint16_t* rows, const int32_t* order, bool transposed, uint32_t* out) {
  dev::Launch(LoadMatrix, dim3(1), dim3(32), 0, nullptr, rows, order, transposed, out);
}
void ProbeCopy(const uint32_t* first, const uint32_t* second, uint32_t valid, uint32_t* early,
               uint32_t* late) {
  dev::Launch(Copy, dim3(1), dim3(32), 0, nullptr, first, second, valid, early, late);
}
void ProbeStores(const uint16_t* values, uint16_t* global, uint16_t* shared) {
  dev::Launch(Stores, dim3(1), dim3(32), 0, nullptr, values, global, shared);
}
void ProbeAtomic(int blocks, int threads, uint32_t* counter, uint32_t* before) {
  dev::Launch(Atomic, dim3(blocks), dim3(threads), 0, nullptr, counter, before);
}
void ProbeLastBlock(int blocks, int threads, uint32_t* counter, uint32_t* values, uint32_t* sum) {
  dev::Launch(LastBlock, dim3(blocks), dim3(threads), 0, nullptr, counter, values, sum);
}
void ProbeSystemFlag(uint64_t flag, uint64_t* place, uint32_t* words, uint32_t* seen,
                     uint64_t* clock) {
  dev::Launch(SystemFlag, dim3(1), dim3(64), 0, nullptr, flag, place, words, seen, clock);
}
void ProbeValues(int count, const float* x, float* exp2, uint32_t* bf16, uint32_t* f16) {
  dev::Launch(Values, dim3((count + 63) / 64), dim3(64), 0, nullptr, count, x, exp2, bf16, f16);
}
void ProbeHalves(int count, const uint16_t* bits, float* values) {
  dev::Launch(HalfValues, dim3((count + 63) / 64), dim3(64), 0, nullptr, count, bits, values);
}
void ProbePickBytes(int count, const uint32_t* a, const uint32_t* b, const uint32_t* which,
                    uint32_t* picked) {
  dev::Launch(PickedBytes, dim3((count + 63) / 64), dim3(64), 0, nullptr, count, a, b, which,
              picked);
}
void ProbeOverlap(bool overlap, int blocks, uint32_t seed, uint32_t* values, uint32_t* out) {
  const OverlapScope scope(overlap);
  dev::Launch(WriteLate, dim3(blocks), dim3(256), 0, nullptr, seed, values);
  dev::Launch(CopyAfterPrevious, dim3(blocks), dim3(256), 0, nullptr, values, out);
}
void ProbeWarp(const float* x, float* sum, float* max) {
  dev::Launch(Warp, dim3(1), dim3(32), 0, nullptr, x, sum, max);
}
void ProbeCluster(int clusters, int size, uint32_t seed, float* out) {
  dev::LaunchClusters(Cluster, size, dim3(clusters, size), dim3(32), 0, nullptr, seed, out);
}
void ProbeDynamicShared(int count, uint32_t seed, uint32_t* out) {
  dev::Launch(DynamicShared, dim3(1), dim3(256), count * sizeof(uint32_t), nullptr, count, seed,
              out);
}

}  // namespace coppice::kernels::cuda
