// The device, simulated on a CPU for tests: what device.h gives to kernels where nvcc does not
// compile them. Each CUDA thread is a fiber; one OS thread runs one launch at a time.
//
// What shows a wrong kernel: shared memory starts as NaN and has red zones between arrays (with the
// address sanitizer); an asynchronous copy leaves garbage until it is waited for; threads of a
// block at different barriers, lanes at different warp operations and deadlocks abort with a list
// of who waits where; the thread sanitizer sees every CUDA thread as a thread of its own, ordered
// by barriers, __syncwarp, acquire and release alone - not by shuffles, votes and mma. Not
// modelled: bank conflicts, occupancy, scopes and fences, sums of mma (double here).
//
// Launches run one after the other, also those that overlap on the device (overlap.h). Of these
// every thread must call WaitForPrevious before it ends, counts, meets another, or copies anything
// but constants. RunOverlapping shows what is read too early: there a launch does all that it does
// before it waits while the launch before has not yet begun its work.
//
// Order of the threads: DEV_ORDER=forward|reverse|random, DEV_SEED=n, DEV_RESIDENT=blocks at a
// time. DEV_OVERLAP=1: every launch counts as one that overlaps.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/cuda/device/cost.h"
#include "kernels/cuda/device/overlap.h"

namespace coppice::kernels::cuda::simt {

// What a launch asks of the device.
struct LaunchKind {
  bool overlaps = false;
  unsigned cluster = 1;  // blocks
};
// Takes each launch with its stream. Without one (nullptr, the default) a launch runs at once.
using Enqueue = void (*)(void* stream, LaunchKind kind, std::function<void()> work);
void SetEnqueue(Enqueue enqueue);

// The declaration for the next launch of this thread. The contract is that of Declare in device.h.
using Cost = LaunchCost;
struct Declared {
  const char* name = nullptr;  // nullptr: the kernel has no name
  std::function<Cost()> cost;
  int64_t blocks = 0, threads = 0;  // of the grid, of a block
  bool overlaps = false;
};
void Declare(const char* name, std::function<Cost()> cost);
Declared TakeDeclared();

struct Grid {
  dim3 grid, block;
  size_t dynamic_shared = 0;  // bytes
  bool overlaps = false;      // its threads must wait for what ran before
  unsigned cluster = 1;       // neighbours along y that form a cluster
  std::function<void()> body;
};
// Runs all blocks of all grids. Several grids are all resident and interleaved, as kernels of
// several devices that wait for each other.
void Run(const std::vector<Grid>& grids);
// Runs launches of one stream that overlap, each as early as the device may: it begins when all
// threads of the launch before it have waited for theirs, and gets as far as WaitForPrevious.
void RunOverlapping(const std::vector<Grid>& grids);
// For tests that run several launches together: from now on launches of this thread are collected
// instead of run. nullptr: they run again.
void CollectGrids(std::vector<Grid>* grids);
// Runs one grid through the hook of SetEnqueue.
void EnqueueGrid(void* stream, Grid grid);

inline constexpr unsigned kAllLanes = 0xffffffffu;

enum class Order { kForward, kReverse, kRandom };

// ---- What a thread is, as far as kernels read it ----

struct alignas(16) Bytes16 {
  uint64_t low, high;
};
struct PendingCopy {
  void* destination;
  const void* source;  // nullptr: zeros
  bool early;          // from before WaitForPrevious
  Bytes16 seen;        // the source as it was then
};

struct Lane {
  static constexpr unsigned kCopies = 512, kGroups = 64;  // in flight at most

  uint3 thread, block;
  dim3 block_size, grid_size;
  unsigned lane;  // 0..31
  PendingCopy copies[kCopies];
  unsigned copy_head, copy_tail;  // copies in flight, modulo kCopies
  unsigned group_end[kGroups];
  unsigned group_head, group_tail;
  bool waited;   // has waited for what ran before the launch
  bool unshown;  // it wrote shared memory that wgmma and the copy engine may not see (hopper.h)
};
extern Lane* current_lane;

// ---- Operations ----

enum class WarpOp : int {
  kNone,
  kSync,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kBallot,
  kAddresses,
  kQuad,
  kMmaBf16,
  kMmaF16
};

void BlockBarrier(const char* file, int line);
// Of all threads of the cluster.
void ClusterBarrier(const char* file, int line);
// Where the block of that rank of the cluster has what this block has at p.
const void* SharedOfPeer(const void* p, unsigned rank);
void WarpBarrier(unsigned mask, const char* file, int line);
// All lanes of the mask meet in one operation and exchange words.
void MeetWarp(WarpOp op, unsigned mask, const uint32_t* in, int in_words, uint32_t* out,
              int out_words, const char* file, int line);
void Yield();  // lets other threads run
// The same for a thread that waits for another device: now and then other processes run.
void Spin();
uint64_t NanoSeconds();
// Until the launch before is done, where launches overlap.
void WaitForPrevious();
// Aborts when this thread has not waited for what ran before.
void CheckWaited();
// The block's array of this declaration: one for each key.
void* SharedArray(const void* key, size_t bytes);
void* DynamicShared();
[[noreturn]] void Fail(const char* what);

template <class T>
T Shuffle(WarpOp op, unsigned mask, T value, unsigned argument, const char* file, int line) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint32_t in[3] = {argument, 0, 0}, out[2];
  std::memcpy(in + 1, &value, sizeof value);
  MeetWarp(op, mask, in, 3, out, 2, file, line);
  std::memcpy(&value, out, sizeof value);
  return value;
}

inline unsigned Ballot(unsigned mask, bool vote, const char* file, int line) {
  uint32_t in = vote, out;
  MeetWarp(WarpOp::kBallot, mask, &in, 1, &out, 1, file, line);
  return out;
}

// Every lane's value in turn, in lane order; join is of integers, so that another order gives the
// same.
template <class T, class Join>
T Reduce(unsigned mask, T value, Join join, const char* file, int line) {
  if (mask == kAllLanes) {
    for (unsigned step = 16; step > 0; step /= 2)
      value = join(value, Shuffle(WarpOp::kShuffleXor, mask, value, step, file, line));
    return value;
  }
  T all = T{};
  bool first = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const T other = Shuffle(WarpOp::kShuffle, mask, value, lane, file, line);
    all = first ? other : join(all, other);
    first = false;
  }
  return all;
}

}  // namespace coppice::kernels::cuda::simt

// ---- CUDA C++ ----

#define threadIdx (::coppice::kernels::cuda::simt::current_lane->thread)
#define blockIdx (::coppice::kernels::cuda::simt::current_lane->block)
#define blockDim (::coppice::kernels::cuda::simt::current_lane->block_size)
#define gridDim (::coppice::kernels::cuda::simt::current_lane->grid_size)

#define DEV_SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(DEV_SIMT_HERE) { coppice::kernels::cuda::simt::BlockBarrier(file, line); }
inline void __syncwarp(unsigned mask = coppice::kernels::cuda::simt::kAllLanes, DEV_SIMT_HERE) {
  coppice::kernels::cuda::simt::WarpBarrier(mask, file, line);
}
#define DEV_SIMT_SHUFFLE(name, op)                                                               \
  template <class T>                                                                             \
  T name(unsigned mask, T value, int argument, DEV_SIMT_HERE) {                                  \
    return coppice::kernels::cuda::simt::Shuffle(coppice::kernels::cuda::simt::WarpOp::op, mask, \
                                                 value, argument, file, line);                   \
  }
DEV_SIMT_SHUFFLE(__shfl_sync, kShuffle)
DEV_SIMT_SHUFFLE(__shfl_xor_sync, kShuffleXor)
DEV_SIMT_SHUFFLE(__shfl_up_sync, kShuffleUp)
DEV_SIMT_SHUFFLE(__shfl_down_sync, kShuffleDown)
#undef DEV_SIMT_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, bool vote, DEV_SIMT_HERE) {
  return coppice::kernels::cuda::simt::Ballot(mask, vote, file, line);
}
inline bool __any_sync(unsigned mask, bool vote, DEV_SIMT_HERE) {
  return coppice::kernels::cuda::simt::Ballot(mask, vote, file, line) != 0;
}
inline bool __all_sync(unsigned mask, bool vote, DEV_SIMT_HERE) {
  return coppice::kernels::cuda::simt::Ballot(mask, !vote, file, line) == 0;
}
// Sums 32-bit integers, as the device does.
template <class T>
T __reduce_add_sync(unsigned mask, T value, DEV_SIMT_HERE) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  const auto add = [](T a, T b) { return static_cast<T>(uint32_t(a) + uint32_t(b)); };
  return coppice::kernels::cuda::simt::Reduce(mask, value, add, file, line);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, DEV_SIMT_HERE) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  const auto larger = [](T a, T b) { return std::max(a, b); };
  return coppice::kernels::cuda::simt::Reduce(mask, value, larger, file, line);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, DEV_SIMT_HERE) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  const auto smaller = [](T a, T b) { return std::min(a, b); };
  return coppice::kernels::cuda::simt::Reduce(mask, value, smaller, file, line);
}
#undef DEV_SIMT_HERE

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// ---- What device.h adds; the contracts are there ----

#define DEV_KERNEL
#define DEV_FUNCTION inline
#define DEV_HOST_FUNCTION inline
#define DEV_BOUNDS(threads, blocks)
#define DEV_UNROLL
#define DEV_GRID_CONSTANT
#define DEV_NO_UNROLL
#define DEV_SHARED(T, name, n)          \
  static const char dev_key_##name = 0; \
  T* const name = static_cast<T*>(      \
      ::coppice::kernels::cuda::simt::SharedArray(&dev_key_##name, sizeof(T) * (n)))
#define DEV_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::coppice::kernels::cuda::simt::DynamicShared())

namespace coppice::kernels::cuda::dev {

template <class T>
void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  constexpr bool kBf16 = std::is_same_v<T, __nv_bfloat16>;
  static_assert(kBf16 || std::is_same_v<T, __half>);
  constexpr simt::WarpOp kOp = kBf16 ? simt::WarpOp::kMmaBf16 : simt::WarpOp::kMmaF16;
  uint32_t in[10];
  std::memcpy(in, a, sizeof a);
  std::memcpy(in + 4, b, sizeof b);
  std::memcpy(in + 6, d, sizeof d);
  uint32_t out[4];
  simt::MeetWarp(kOp, simt::kAllLanes, in, 10, out, 4, "Mma", 0);
  std::memcpy(d, out, sizeof d);
}

// The addresses of the rows that this lane reads, one of each matrix. The loads themselves are the
// kernel's, so that the sanitizers see them.
inline void MatrixRows(const void* row, const uint8_t* (&rows)[4], int which) {
  uint32_t in[3];
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) simt::Fail("ldmatrix of an unaligned row");
  std::memcpy(in, &row, sizeof row);
  in[2] = static_cast<uint32_t>(which);
  uint32_t out[8];
  simt::MeetWarp(simt::WarpOp::kAddresses, simt::kAllLanes, in, 3, out, 8, "LoadMatrix4", which);
  std::memcpy(rows, out, sizeof rows);
}
inline void LoadMatrix4(uint32_t (&r)[4], const void* row) {
  const unsigned lane = simt::current_lane->lane;
  const uint8_t* rows[4];
  MatrixRows(row, rows, static_cast<int>(lane / 4));
  for (int i = 0; i < 4; ++i) r[i] = reinterpret_cast<const uint32_t*>(rows[i])[lane % 4];
}
inline void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  const unsigned lane = simt::current_lane->lane;
  const uint8_t *low[4], *high[4];
  MatrixRows(row, low, static_cast<int>(lane % 4 * 2));
  MatrixRows(row, high, static_cast<int>(lane % 4 * 2 + 1));
  for (int i = 0; i < 4; ++i) {
    const uint32_t first = reinterpret_cast<const uint16_t*>(low[i])[lane / 4];
    const uint32_t second = reinterpret_cast<const uint16_t*>(high[i])[lane / 4];
    r[i] = first | second << 16;
  }
}

using simt::Bytes16;
inline void WaitForPrevious() { simt::WaitForPrevious(); }
inline int UnknownThread() { return static_cast<int>(threadIdx.x); }

inline constexpr bool kClusters = true;
inline void ClusterBarrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  simt::ClusterBarrier(file, line);
}
inline void LoadPeer4(float (&values)[4], const float* p, int rank) {
  const auto* from = static_cast<const float*>(simt::SharedOfPeer(p, static_cast<unsigned>(rank)));
  for (int i = 0; i < 4; ++i) values[i] = from[i];
}

inline void CopyConstantAsync16(void* shared, const void* global, bool valid = true) {
  simt::Lane& lane = *simt::current_lane;
  *static_cast<Bytes16*>(shared) = {~uint64_t{0}, ~uint64_t{0}};  // NaN in every type
  if (lane.copy_tail - lane.copy_head == simt::Lane::kCopies) simt::Fail("too many copies");
  simt::PendingCopy copy = {shared, valid ? global : nullptr, !lane.waited, {}};
  if (copy.early && valid) copy.seen = *static_cast<const Bytes16*>(global);
  lane.copies[lane.copy_tail++ % simt::Lane::kCopies] = copy;
}
inline void CopyAsync16(void* shared, const void* global, bool valid = true) {
  simt::CheckWaited();
  CopyConstantAsync16(shared, global, valid);
}
inline void CopyCommit() {
  simt::Lane& lane = *simt::current_lane;
  if (lane.group_tail - lane.group_head == simt::Lane::kGroups) simt::Fail("too many copy groups");
  lane.group_end[lane.group_tail++ % simt::Lane::kGroups] = lane.copy_tail;
}
template <unsigned N>
void CopyWait() {
  simt::Lane& lane = *simt::current_lane;
  for (; lane.group_tail - lane.group_head > N; ++lane.group_head) {
    const unsigned end = lane.group_end[lane.group_head % simt::Lane::kGroups];
    for (; lane.copy_head != end; ++lane.copy_head) {
      const simt::PendingCopy& copy = lane.copies[lane.copy_head % simt::Lane::kCopies];
      Bytes16 now = {0, 0};
      if (copy.source != nullptr) now = *static_cast<const Bytes16*>(copy.source);
      if (copy.early && (now.low != copy.seen.low || now.high != copy.seen.high))
        simt::Fail("what was copied before WaitForPrevious has changed since");
      *static_cast<Bytes16*>(copy.destination) = now;
      lane.unshown = true;
    }
  }
}

inline float LoadInput(const float* p) {
  simt::CheckWaited();
  return *p;
}

inline uint32_t AtomicAddAcqRel(uint32_t* p, uint32_t value) {
  simt::CheckWaited();
  simt::Yield();
  return __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL);
}

inline void StoreReleaseSystem(uint64_t* p, uint64_t value) {
  simt::CheckWaited();
  simt::Yield();
  __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
inline uint64_t LoadAcquireSystem(const uint64_t* p) {
  simt::CheckWaited();
  simt::Spin();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline uint32_t LoadRelaxedSystem(const uint32_t* p) {
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
inline void StoreRelaxedSystem(uint32_t* p, uint32_t value) {
  __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
inline uint64_t NanoSeconds() { return simt::NanoSeconds(); }

template <class P>
void StoreAtOnce(P* p, const P& values) {
  *p = values;
}

inline uint32_t PickBytes(uint32_t a, uint32_t b, uint32_t which) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = which >> (4 * i) & 15;
    if (byte > 7) simt::Fail("PickBytes of more than eight bytes");
    picked |= static_cast<uint32_t>(bytes >> (8 * byte) & 0xff) << (8 * i);
  }
  return picked;
}

inline float Exp2(float x) { return std::exp2(x); }

using simt::Cost;
using simt::Declare;

// Compiled without contraction, or for processors without fma.
inline float AddRn(float a, float b) { return a + b; }
inline float MulRn(float a, float b) { return a * b; }
inline double AddRn(double a, double b) { return a + b; }
inline double MulRn(double a, double b) { return a * b; }
inline uint64_t MulWide(uint32_t a, uint32_t b) { return uint64_t{a} * b; }
inline float FusedMultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }

template <class... Params, class... Args>
void LaunchClusters(void (*kernel)(Params...), int cluster, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, Args... args) {
  simt::EnqueueGrid(stream, {grid, block, shared, launches_overlap, static_cast<unsigned>(cluster),
                             [kernel, bound = std::tuple<std::decay_t<Params>...>(args...)] {
                               std::apply(kernel, bound);
                             }});
}
template <class... Params, class... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
            Args... args) {
  LaunchClusters(kernel, 1, grid, block, shared, stream, args...);
}

}  // namespace coppice::kernels::cuda::dev
