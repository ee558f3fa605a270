// What a kernel for compute capability 9.0 alone may use besides device.h: matrix products of a
// warpgroup (wgmma), copies of boxes of a matrix by the copy engine (TMA), and the barriers in
// shared memory that count both threads and bytes (mbarrier). Files that include it end in
// _sm90a.cu and are compiled for sm_90a alone. The simulator's part is simt_hopper.h, which says
// what it models.
//
// A warpgroup is four consecutive warps, the first a multiple of four. *Swizzled* shared memory
// holds rows of 128 bytes in groups of eight, 1024-byte aligned: the 16 bytes number c of row r lie
// at number c ^ r % 8.
#pragma once

#include "kernels/cuda/device/device.h"

#if defined(__CUDACC__)

#include <cuda.h>

// A kernel's parameter that the copy engine reads.
#define DEV_GRID_CONSTANT __grid_constant__

namespace coppice::kernels::cuda::dev {

// A row-major matrix of 16-bit values in device memory, and the boxes of 64 columns that are copied
// from it.
using TensorMap = CUtensorMap;

// columns: a multiple of 64; data 16-byte aligned; at most 256 rows of a box. Reads nothing.
inline cudaError_t MakeTensorMap(const void* data, bool f16, int64_t rows, int64_t columns,
                                 int box_rows, TensorMap* map) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorSymbolNotFound;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  const CUresult result = reinterpret_cast<Encode>(entry)(
      map, f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// ---- Barriers. In phases, numbered from 0; a phase ends when `arrivals` threads have arrived and
// as many bytes were copied as they expect.

// Called by one thread, which then calls BarriersReady; a __syncthreads is needed before anyone
// uses them.
DEV_FUNCTION void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
DEV_FUNCTION void BarriersReady() {
  asm volatile("fence.mbarrier_init.release.cluster;\n fence.proxy.async.shared::cta;" ::
                   : "memory");
}
// Orders what this thread did before for those that wait.
DEV_FUNCTION void BarrierArrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// The same, and the phase does not end before this many more bytes were copied.
DEV_FUNCTION void BarrierArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
// Waits until a phase of this parity (its number modulo 2) has ended, not counting the last but
// one: on a fresh barrier, parity 1 does not wait.
DEV_FUNCTION void BarrierWait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "again:\n mbarrier.try_wait.parity.shared::cta.b64 done,[%0],%1;\n"
      " @!done bra again;\n}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// ---- The copy engine.

// Starts a copy of the box at (row, column) to swizzled shared memory, 1024-byte aligned. Places
// outside the matrix become zeros. Its bytes, 128 for each row of the box, count for the barrier.
DEV_FUNCTION void CopyBox(void* shared, const TensorMap& map, int column, int row,
                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0],[%1,{%2,%3}],[%4];" ::"r"(SharedAddress(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(barrier))
      : "memory");
}
// Call it before a barrier: writes of this thread to shared memory (also CopyAsync16, once it was
// waited for) are then seen by wgmma and the copy engine after the barrier.
DEV_FUNCTION void ShowToAsync() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Registers of a thread, by whole warpgroups, each once and in a branch of its own: what one
// gives, others may take. A kernel's registers times its threads are what there is.
template <int kRegisters>
DEV_FUNCTION void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
DEV_FUNCTION void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- Products of a warpgroup. All its warps call the same, converged.

// The compiler does not know that a run writes its sums d until it is waited for. This prevents it
// from moving other uses of them across.
template <int kEights>
DEV_FUNCTION void HoldSums(float (&d)[kEights][4]) {
  DEV_UNROLL
  for (int i = 0; i < kEights * 4; ++i) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}
// Before a run of products: its sums d are as they were written.
template <int kEights>
DEV_FUNCTION void WarpgroupBegin(float (&d)[kEights][4]) {
  HoldSums(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Closes the run.
DEV_FUNCTION void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all runs except the last N are done; only then are their sums d and the shared memory
// free.
template <int N, int kEights>
DEV_FUNCTION void WarpgroupWait(float (&d)[kEights][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
  HoldSums(d);
}

#define DEV_D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define DEV_D16(i) DEV_D4(i), DEV_D4((i) + 1), DEV_D4((i) + 2), DEV_D4((i) + 3)
#define DEV_D32(i) DEV_D16(i), DEV_D16((i) + 4)
#define DEV_WGMMA_64(type)                                                                       \
  asm volatile(                                                                                  \
      "{\n .reg .pred add;\n setp.ne.b32 add,%37,0;\n"                                           \
      " wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                               \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
      "%24,%25,%26,%27,%28,%29,%30,%31},{%32,%33,%34,%35},%36,add,1,1,%38;\n}\n"                 \
      : DEV_D32(0)                                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}), "n"(int{kTransposed}))
#define DEV_WGMMA_128(type)                                                                      \
  asm volatile(                                                                                  \
      "{\n .reg .pred add;\n setp.ne.b32 add,%69,0;\n"                                           \
      " wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                              \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
      "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
      "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},{%64,%65,%66,"   \
      "%67},%68,add,1,1,%70;\n}\n"                                                               \
      : DEV_D32(0), DEV_D32(8)                                                                   \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int{add}), "n"(int{kTransposed}))

// d = a b, or d += a b. a [64, 16] of T, of which warp w of the group holds the rows 16 w .. 16 w +
// 15 as Mma does; b [16, 8 kEights] in swizzled shared memory (MatrixOf); d f32: of the warp's rows
// each 8 columns as Mma's d. Runs behind the caller until WarpgroupWait.
template <class T, bool kTransposed, int kEights>
DEV_FUNCTION void MmaAsync(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  static_assert(kBf16 || std::is_same_v<T, f16>);
  static_assert(kEights == 8 || kEights == 16);
  if constexpr (kBf16 && kEights == 8) {
    DEV_WGMMA_64("bf16");
  } else if constexpr (kBf16) {
    DEV_WGMMA_128("bf16");
  } else if constexpr (kEights == 8) {
    DEV_WGMMA_64("f16");
  } else {
    DEV_WGMMA_128("f16");
  }
}
#undef DEV_WGMMA_64
#undef DEV_WGMMA_128
#undef DEV_D4
#undef DEV_D16
#undef DEV_D32

}  // namespace coppice::kernels::cuda::dev

#else
#include "kernels/cuda/simulator/simt_hopper.h"
#endif

namespace coppice::kernels::cuda::dev {

// A matrix [16, N] in swizzled shared memory, as MmaAsync takes it. Not transposed: memory row n
// holds the 16 values of column n of it, from `start` on (a 16-byte place in a row; memory rows
// follow each other). Transposed: memory row k holds 64 values of row k of it; the next 64 lie
// `panel` bytes on.
DEV_FUNCTION uint64_t MatrixOf(const void* start, uint32_t panel) {
  constexpr uint64_t kEightRows = 1024 >> 4, kSwizzle128 = 1;
  return uint64_t{(SharedAddress(start) & 0x3ffff) >> 4} | uint64_t{panel >> 4} << 16 |
         kEightRows << 32 | kSwizzle128 << 62;
}

}  // namespace coppice::kernels::cuda::dev
