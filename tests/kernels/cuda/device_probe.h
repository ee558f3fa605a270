// Kernels that do one thing each: what a wrapper of kernels/cuda/device/device.h does, with its
// registers as the lanes hold them. Arrays are device memory; each function is one launch.
#pragma once

#include <cstdint>

namespace coppice::kernels::cuda {

// One warp. d [32][4] += a [32][4] times b [32][2], the registers of Mma by lane, of f16 or bf16.
void ProbeMma(bool f16, const uint32_t* a, const uint32_t* b, float* d);

// One warp. Lane l gives row order[l] of rows [32][8] to LoadMatrix4, or to its transposed form;
// out [32][4].
void ProbeLoadMatrix(const uint16_t* rows, const int32_t* order, bool transposed, uint32_t* out);

// One warp. Lane l copies 16 bytes of first and of second [32][4], as two groups, where its bit in
// `valid` is set. early [32][4]: the first after CopyWait<1>; late [32][8]: both after CopyWait<0>.
void ProbeCopy(const uint32_t* first, const uint32_t* second, uint32_t valid, uint32_t* early,
               uint32_t* late);

// One warp. Stores packs of eight, four and two values for each lane, from one end of values [kProbeStores]
// to the other, to global, and to shared memory, which is then copied to `shared`.
inline constexpr int kProbeStores = 32 * (8 + 4 + 2);
void ProbeStores(const uint16_t* values, uint16_t* global, uint16_t* shared);

// blocks x threads. before: what every thread's AtomicAddAcqRel(counter, 1) gave.
void ProbeAtomic(int blocks, int threads, uint32_t* counter, uint32_t* before);

// Every block writes `threads` values and counts itself in; the last adds up those of all.
void ProbeLastBlock(int blocks, int threads, uint32_t* counter, uint32_t* values, uint32_t* sum);

// A thread writes words [65], the last by StoreRelaxedSystem, and raises the flag at `place`; another waits
// for it and copies them to seen [65]. clock [2]: NanoSeconds before and after.
void ProbeSystemFlag(uint64_t flag, uint64_t* place, uint32_t* words, uint32_t* seen,
                     uint64_t* clock);

// One thread for each value. exp2[i] = Exp2(x[i]); bf16[i], f16[i] = PackPair(x[i], -x[i]).
void ProbeValues(int count, const float* x, float* exp2, uint32_t* bf16, uint32_t* f16);

// values[i] = ToFloat of the f16 that bits[i] are.
void ProbeHalves(int count, const uint16_t* bits, float* values);

// picked[i] = PickBytes(a[i], b[i], which[i]).
void ProbePickBytes(int count, const uint32_t* a, const uint32_t* b, const uint32_t* which,
                    uint32_t* picked);

// values[i] = i + seed for blocks x 256 values, late in each thread; a second launch, which with `overlap`
// may be placed before the first is done, copies them to out in reverse.
void ProbeOverlap(bool overlap, int blocks, uint32_t seed, uint32_t* values, uint32_t* out);

// One warp. sum, max [32]: WarpSum and WarpMax of x [32].
void ProbeWarp(const float* x, float* sum, float* max);

// `clusters` clusters of `size` blocks of 32 threads: out [clusters, size, size, 4], of each block what
// it reads in the shared memory of each block of its cluster: seed + the reader's cluster * 1000 + the
// other's rank * 4 + 0 .. 3.
void ProbeCluster(int clusters, int size, uint32_t seed, float* out);

// One block of 256 threads: out[i] = i + seed for count values, by way of dynamic shared memory.
void ProbeDynamicShared(int count, uint32_t seed, uint32_t* out);

// ---- device/hopper.h. On compute capability 9.0 alone.

// One warpgroup. d [128][8 eights / 2] = (add: +=) the product of a [128][4], the registers of MmaAsync by
// thread, and part `step` (16 columns of a row, or 16 rows when transposed) of a matrix in swizzled
// shared memory: [columns][64] of b, or transposed [panel of 64 columns][64][64]. eights: 8 or 16.
void ProbeMmaAsync(bool f16, bool transposed, int eights, int step, bool add, const uint32_t* a,
                   const uint16_t* b, float* d);

// The box at (column, row) of values [rows][columns], and shared memory as it lies: out [box_rows][64].
// The error: of the tensor map.
int ProbeCopyBox(const uint16_t* values, int rows, int columns, int box_rows, int column, int row,
                 uint16_t* out);

// Two warps and a ring of two places: one writes values (round, lane), the other reads what neighbours
// wrote. out [rounds][32].
void ProbeBarriers(int rounds, uint32_t* out);

// Three warpgroups, the last of which gives registers to the others. out [384]: of the first 256 a sum over 100
// values [384] that a thread holds at once, of the others their value and 1.
void ProbeRegisters(const float* values, float* out);

}  // namespace coppice::kernels::cuda
