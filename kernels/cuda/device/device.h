// What a kernel may use of the device: the one header of the language that a .cu file includes.
// nvcc compiles kernels for the GPU, and every instruction that needs assembly is wrapped here. Any
// other compiler compiles the same files for the simulator (simt.h), which runs them on a CPU.
//
// Beside CUDA C++ (threadIdx, __syncthreads, __syncwarp, shuffles, votes, __popc, __ffs, __ldg) a
// kernel uses what this header declares. Restrictions: shuffles of the whole warp's width, shared
// memory by DEV_SHARED and DEV_DYNAMIC_SHARED, launches by Launch, no atomics but those below.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/cost.h"
#include "kernels/cuda/device/overlap.h"

namespace coppice::kernels::cuda::dev {
using bf16 = __nv_bfloat16;
using f16 = __half;
inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr int kWarpSize = 32;
}  // namespace coppice::kernels::cuda::dev

#if defined(__CUDACC__)

#define DEV_KERNEL __global__
#define DEV_FUNCTION __device__ __forceinline__
// Of kernels and of the functions that launch them.
#define DEV_HOST_FUNCTION __host__ __device__ __forceinline__
// Most threads of a block and least blocks on a multiprocessor.
#define DEV_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
// Of a const parameter of a kernel that it indexes: it stays where it is.
#define DEV_GRID_CONSTANT __grid_constant__
// Before a loop whose arrays must stay in registers.
#define DEV_UNROLL _Pragma("unroll")
// Before a loop whose turns must not be joined.
#define DEV_NO_UNROLL _Pragma("unroll 1")
// An array of the block, 16-byte aligned. At function scope.
#define DEV_SHARED(T, name, n) __shared__ __align__(16) T name[n]
// The launch's dynamic shared memory, 16-byte aligned.
#define DEV_DYNAMIC_SHARED(T, name)                             \
  extern __shared__ __align__(16) unsigned char dev_dynamic_[]; \
  T* const name = reinterpret_cast<T*>(dev_dynamic_)

namespace coppice::kernels::cuda::dev {

// d += a b, a [16, 16] of T row-major, b [16, 8] of T, d [16, 8] f32, spread over the warp: lane l,
// g = l / 4, t = l % 4, holds of d rows g, g + 8, columns 2t, 2t + 1; of a the pairs (g, 2t),
// (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8) along columns; of b the pairs (2t, g), (2t + 8, g)
// along rows. T: bf16 or f16.
template <class T>
DEV_FUNCTION void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<T, f16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

DEV_FUNCTION uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 matrices of 16-bit values. Lane 8 i + j gives the address of row j of matrix i (16
// bytes, aligned); lane l gets of matrix i the pair (l / 4, 2 (l % 4)) along a row.
DEV_FUNCTION void LoadMatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// The same, each matrix transposed: the pair (2 (l % 4), l / 4) along a column.
DEV_FUNCTION void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Starts a copy of 16 bytes from global to shared memory, or of 16 zero bytes when not `valid`.
DEV_FUNCTION void CopyAsync16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
// The same of memory that no launch of the stream writes, such as weights: also before
// WaitForPrevious.
DEV_FUNCTION void CopyConstantAsync16(void* shared, const void* global, bool valid = true) {
  CopyAsync16(shared, global, valid);
}
// Closes a group of copies of this thread.
DEV_FUNCTION void CopyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all groups of this thread but the last N have landed.
template <int N>
DEV_FUNCTION void CopyWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Loads what no thread of this launch writes, after WaitForPrevious. Not so __ldg, where the launch
// before writes it: the compiler may move that ahead of the wait.
DEV_FUNCTION float LoadInput(const float* p) {
  float value;
  asm volatile("ld.global.f32 %0,[%1];" : "=f"(value) : "l"(p));
  return value;
}

// Returns the value before. Orders the writes and reads of this thread, or of its block before a
// barrier.
DEV_FUNCTION uint32_t AtomicAddAcqRel(uint32_t* p, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],%2;"
               : "=r"(before)
               : "l"(p), "r"(value)
               : "memory");
  return before;
}

// Across devices: writes of this thread, or of its block before a barrier, that precede the store
// are seen by whoever loads the value, and by its block after a barrier. A polling thread uses
// these.
DEV_FUNCTION void StoreReleaseSystem(uint64_t* p, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0],%1;" ::"l"(p), "l"(value) : "memory");
}
DEV_FUNCTION uint64_t LoadAcquireSystem(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0,[%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}
// A word that the host reads, or may write meanwhile. Orders nothing.
DEV_FUNCTION uint32_t LoadRelaxedSystem(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.u32 %0,[%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
DEV_FUNCTION void StoreRelaxedSystem(uint32_t* p, uint32_t value) {
  asm volatile("st.relaxed.sys.u32 [%0],%1;" ::"l"(p), "r"(value) : "memory");
}
// A clock of the device.
DEV_FUNCTION uint64_t NanoSeconds() {
  uint64_t ns;
  asm volatile("mov.u64 %0,%%globaltimer;" : "=l"(ns));
  return ns;
}

// One store of 8 or 16 bytes, to global or shared memory. The compiler takes a store of several
// values apart and does not always join them again; a warp then writes each of its sectors several
// times.
template <class P>
DEV_FUNCTION void StoreAtOnce(P* p, const P& values) {
  if constexpr (sizeof(P) == 16) {
    uint32_t words[4];
    __builtin_memcpy(words, &values, sizeof words);
    asm volatile("st.v4.b32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  } else if constexpr (sizeof(P) == 8) {
    uint32_t words[2];
    __builtin_memcpy(words, &values, sizeof words);
    asm volatile("st.v2.b32 [%0],{%1,%2};" ::"l"(p), "r"(words[0]), "r"(words[1]) : "memory");
  } else {
    *p = values;
  }
}

// Four bytes of a (numbers 0 to 3) and b (4 to 7), the lowest first: each by four bits of `which`,
// below 8.
DEV_FUNCTION uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t which) {
  return __byte_perm(a, b, which);
}

// 2^x to about 2 ulp; 0 for -inf.
DEV_FUNCTION float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}

// The first statement of every kernel, after copies of constants at most: waits until everything
// that ran before on the stream is done and its writes are seen, then lets the next launch begin.
// So when a launch begins, all but the one before it are done; and it writes nothing before that one
// is done too. Memory that a launch reads or writes may therefore be used anew by the next one, as
// without overlap. Does nothing for a launch that does not overlap.
DEV_FUNCTION void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// threadIdx.x as a value that the compiler does not know. What follows from it is computed where it
// is used, and takes no register elsewhere.
DEV_FUNCTION int UnknownThread() {
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));
  return thread;
}

using Cost = LaunchCost;
// Called before each launch: its name, and a function that gives its cost when it runs; the
// function may read what the kernel reads. Only the simulator uses it.
template <class CostWhenRun>
void Declare(const char*, CostWhenRun) {}

// ---- Clusters (LaunchClusters), of compute capability 9.0.

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kClusters = true;
#else
inline constexpr bool kClusters = false;  // what follows must not be called
#endif

// All threads of the cluster's blocks meet, and see what they have written to shared memory.
DEV_FUNCTION void ClusterBarrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}
// Loads 16 bytes from where the block of that rank of the cluster has what this block has at p, in
// shared memory. The peer must have met this block at a barrier before, and again before it ends.
DEV_FUNCTION void LoadPeer4(float (&values)[4], const float* p, int rank) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n .reg .b32 peer;\n mapa.shared::cluster.u32 peer,%4,%5;\n"
      " ld.shared::cluster.v4.f32 {%0,%1,%2,%3},[peer];\n}\n"
      : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
      : "r"(SharedAddress(p)), "r"(rank)
      : "memory");
#endif
}

// Each is rounded once and never joined into an fma.
DEV_FUNCTION float AddRn(float a, float b) { return __fadd_rn(a, b); }
DEV_FUNCTION float MulRn(float a, float b) { return __fmul_rn(a, b); }
DEV_FUNCTION double AddRn(double a, double b) { return __dadd_rn(a, b); }
DEV_FUNCTION double MulRn(double a, double b) { return __dmul_rn(a, b); }
// a b + c, rounded once. Where bits must not depend on what a compiler joins, a sum of a product is
// one of these or a sum of a MulRn.
DEV_FUNCTION float FusedMultiplyAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// The whole product, by one instruction. Of the 64-bit product of a constant above 2^31 the compiler
// also adds the part that is zero.
DEV_FUNCTION uint64_t MulWide(uint32_t a, uint32_t b) {
  uint64_t product;
  asm("mul.wide.u32 %0,%1,%2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

// Enqueues one launch in clusters of this many neighbours along y; grid.y is a multiple. A block's
// rank in its cluster is blockIdx.y % cluster. `shared` is dynamic shared memory in bytes. Errors:
// cudaGetLastError.
template <class... Params, class... Args>
void LaunchClusters(void (*kernel)(Params...), int cluster, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, Args... args) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launches_overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {1, static_cast<unsigned>(cluster), 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}
// The same without clusters.
template <class... Params, class... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
            Args... args) {
  LaunchClusters(kernel, 1, grid, block, shared, stream, args...);
}

}  // namespace coppice::kernels::cuda::dev

#else
#include "kernels/cuda/simulator/simt.h"
#endif

namespace coppice::kernels::cuda::dev {

DEV_FUNCTION float ToFloat(float value) { return value; }
DEV_FUNCTION float ToFloat(bf16 value) { return __bfloat162float(value); }
DEV_FUNCTION float ToFloat(f16 value) { return __half2float(value); }
DEV_FUNCTION float ToFloat(int8_t value) { return static_cast<float>(value); }

// Round to nearest, ties to even. f16 is infinite from 65520 on.
template <class T>
DEV_FUNCTION T FromFloat(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(value);
  } else if constexpr (std::is_same_v<T, f16>) {
    return __float2half_rn(value);
  } else {
    return value;
  }
}

// Two values as the fragments of Mma<T> hold them: the first in the low half.
DEV_FUNCTION uint32_t BitsOf(bf16 value) { return __bfloat16_as_ushort(value); }
DEV_FUNCTION uint32_t BitsOf(f16 value) { return __half_as_ushort(value); }
template <class T>
DEV_FUNCTION uint32_t PackPair(float low, float high) {
  return BitsOf(FromFloat<T>(low)) | BitsOf(FromFloat<T>(high)) << 16;
}

// N neighbouring values, loaded and stored at once; N sizeof(T) <= 16 and aligned to that.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  static_assert(N * sizeof(T) <= 16);
  T value[N];
};
template <int N, class T>
DEV_FUNCTION Pack<T, N> LoadPack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T>
DEV_FUNCTION void StorePack(T* p, const Pack<T, N>& pack) {
  StoreAtOnce(reinterpret_cast<Pack<T, N>*>(p), pack);
}

// Sum and maximum over the warp, the same bits in every lane.
DEV_FUNCTION float WarpSum(float value) {
  for (int step = kWarpSize / 2; step > 0; step /= 2)
    value += __shfl_xor_sync(kFullWarp, value, step);
  return value;
}
DEV_FUNCTION float WarpMax(float value) {
  for (int step = kWarpSize / 2; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, step));
  return value;
}

}  // namespace coppice::kernels::cuda::dev
