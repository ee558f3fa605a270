// hopper.h for the simulator, from what the PTX ISA says of these instructions.
//
// Modelled: a copy by tensor map leaves garbage until someone waits for its barrier, and comes
// then, box by box; phases of barriers, counts of arrivals and bytes; the layout of matrices in
// swizzled shared memory by their descriptors. Products: registers of sums hold NaN until they are
// waited for; memory is read when they begin and again when they are waited for, and must not
// differ. What ends a run: a barrier used before it is ready, a product without WarpgroupBegin,
// threads or blocks that end with copies or products under way, threads that arrive with shared
// memory written by CopyAsync16 and not shown (ShowToAsync), boxes and matrices that are not
// aligned. Not modelled: that the four warps of a warpgroup call the same; ordinary stores that are
// not shown; what other descriptors mean than those of MatrixOf; sums of products (double here).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cuda/simulator/simt.h"

#define DEV_GRID_CONSTANT

namespace coppice::kernels::cuda::dev {

struct TensorMap {
  const uint16_t* data = nullptr;
  int64_t rows = 0, columns = 0;
  int box_rows = 0;
};

}  // namespace coppice::kernels::cuda::dev

namespace coppice::kernels::cuda::simt {

// Products of a thread that run.
struct AsyncProducts {
  static constexpr int kMost = 32, kMostSums = 2, kMostRegisters = 64;

  struct Product {
    int sum;         // index of what it adds to
    uint32_t a[16];  // operand a of the four lanes that hold its rows
    uint64_t b;
    bool f16, transposed, add;
  } products[kMost];
  int count = 0;
  struct Sum {
    float* d;  // the kernel's registers
    int registers;
    float early[kMostRegisters];  // with memory as it was when the product began
    float late[kMostRegisters];   // with memory as it is when it is waited for
  } sums[kMostSums];
  int sum_count = 0;
  int groups[kMost];  // the products of each committed run
  int group_count = 0, open = 0;
  bool begun = false;

  void Clear() {
    count = sum_count = group_count = open = 0;
    begun = false;
  }
};
AsyncProducts& CurrentProducts();

struct BoxCopy {
  uint64_t* barrier;
  unsigned char* shared;
  dev::TensorMap map;
  int column, row;
};

unsigned char* SharedWindow();  // shared memory of the block; shared addresses count from here
void InitBarrier(uint64_t* barrier, uint32_t arrivals);
void SetBarriersReady();
void Arrive(uint64_t* barrier, uint32_t bytes);
bool Passed(uint64_t* barrier, uint32_t parity);  // orders memory if the phase has passed
void CountBytes(uint64_t* barrier, uint32_t bytes);
void Sleep(uint64_t* barrier);  // until the barrier may have changed
void StartBox(const BoxCopy& copy);
bool TakeBox(uint64_t* barrier, BoxCopy* copy);  // takes a copy that counts for the barrier
void SetShown();
// The registers of a of the lanes that share this lane's rows.
void MeetQuad(const uint32_t (&a)[4], uint32_t (&out)[16]);

inline uint32_t Swizzle(uint32_t address) { return address ^ (address >> 3 & 0x70); }

// Element (k, n) of the matrix that a descriptor names.
inline float ElementOfB(const AsyncProducts::Product& p, int k, int n) {
  const uint32_t start = static_cast<uint32_t>(p.b & 0x3fff) << 4;
  const uint32_t leading = static_cast<uint32_t>(p.b >> 16 & 0x3fff) << 4;
  const uint32_t stride = static_cast<uint32_t>(p.b >> 32 & 0x3fff) << 4;
  uint32_t address = start;
  if (p.transposed) {
    address += n % 64 * 2 + n / 64 * leading + k % 8 * 128 + k / 8 * stride;
  } else {
    address += n % 8 * 128 + n / 8 * stride + k * 2;
  }
  uint16_t bits;
  __builtin_memcpy(&bits, SharedWindow() + Swizzle(address), sizeof bits);
  if (p.f16) return __half2float(__ushort_as_half(bits));
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}
inline float ElementOfA(const AsyncProducts::Product& p, int half, int k) {
  const uint32_t pair = p.a[k % 8 / 2 * 4 + k / 8 * 2 + half];
  const auto bits = static_cast<uint16_t>(k % 2 == 0 ? pair : pair >> 16);
  if (p.f16) return __half2float(__ushort_as_half(bits));
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}
// One product, of this lane's sums.
inline void RunProduct(const AsyncProducts::Product& p, int registers, float* sums) {
  const int quad = static_cast<int>(current_lane->lane % 4);
  float a[2][16];
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 16; ++k) a[half][k] = ElementOfA(p, half, k);
  }
  for (int i = 0; i < registers; i += 2) {
    const int half = i / 2 % 2;
    for (int e = 0; e < 2; ++e) {
      const int n = i / 4 * 8 + quad * 2 + e;
      double sum = p.add ? double{sums[i + e]} : 0.0;
      for (int k = 0; k < 16; ++k) sum += double{a[half][k]} * ElementOfB(p, k, n);
      sums[i + e] = static_cast<float>(sum);
    }
  }
}

}  // namespace coppice::kernels::cuda::simt

namespace coppice::kernels::cuda::dev {

inline cudaError_t MakeTensorMap(const void* data, bool, int64_t rows, int64_t columns,
                                 int box_rows, TensorMap* map) {
  if (columns % 64 != 0 || box_rows < 1 || box_rows > 256 ||
      reinterpret_cast<uintptr_t>(data) % 16 != 0) {
    return cudaErrorInvalidValue;
  }
  *map = {static_cast<const uint16_t*>(data), rows, columns, box_rows};
  return cudaSuccess;
}

inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - simt::SharedWindow());
}

inline void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  simt::CheckWaited();
  simt::InitBarrier(barrier, arrivals);
}
inline void BarriersReady() { simt::SetBarriersReady(); }
inline void BarrierArrive(uint64_t* barrier) { simt::Arrive(barrier, 0); }
inline void BarrierArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  simt::Arrive(barrier, bytes);
}

// The copies themselves are the kernel's, so that the sanitizers see them.
inline void RunBox(const simt::BoxCopy& copy) {
  const uint32_t base = SharedAddress(copy.shared);
  for (int r = 0; r < copy.map.box_rows; ++r) {
    for (int c = 0; c < 8; ++c) {
      const int64_t row = int64_t{copy.row} + r, column = copy.column + c * 8;
      const bool inside =
          copy.row + r >= 0 && row < copy.map.rows && column >= 0 && column + 8 <= copy.map.columns;
      const uint32_t place = simt::Swizzle(base + static_cast<uint32_t>(r * 128 + c * 16));
      auto* to = reinterpret_cast<Bytes16*>(simt::SharedWindow() + place);
      if (!inside) {
        *to = {0, 0};
        continue;
      }
      const uint16_t* from = copy.map.data + row * copy.map.columns + column;
      *to = *reinterpret_cast<const Bytes16*>(from);
    }
  }
}
inline void BarrierWait(uint64_t* barrier, uint32_t parity) {
  simt::CheckWaited();
  while (!simt::Passed(barrier, parity)) {
    simt::BoxCopy copy;
    if (simt::TakeBox(barrier, &copy)) {
      RunBox(copy);
      simt::CountBytes(barrier, static_cast<uint32_t>(copy.map.box_rows) * 128);
    } else {
      simt::Sleep(barrier);
    }
  }
}

inline void CopyBox(void* shared, const TensorMap& map, int column, int row, uint64_t* barrier) {
  simt::CheckWaited();
  if (SharedAddress(shared) % 1024 != 0 || column % 64 != 0) simt::Fail("a box is not aligned");
  auto* to = static_cast<unsigned char*>(shared);
  for (int i = 0; i < map.box_rows * 8; ++i) {
    reinterpret_cast<Bytes16*>(to)[i] = {~uint64_t{0}, ~uint64_t{0}};  // NaN in every type
  }
  simt::StartBox({barrier, to, map, column, row});
}
inline void ShowToAsync() { simt::SetShown(); }

template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

template <int kEights>
void WarpgroupBegin(float (&)[kEights][4]) {
  simt::CurrentProducts().begun = true;
}
inline void WarpgroupCommit() {
  simt::AsyncProducts& all = simt::CurrentProducts();
  all.groups[all.group_count++] = all.open;
  all.open = 0;
}
template <int N, int kEights>
void WarpgroupWait(float (&)[kEights][4]) {
  simt::AsyncProducts& all = simt::CurrentProducts();
  static_assert(N == 0, "only for all of them");
  if (all.open != 0) simt::Fail("products that were not committed are waited for");
  for (int i = 0; i < all.count; ++i) {
    const auto& product = all.products[i];
    simt::AsyncProducts::Sum& sum = all.sums[product.sum];
    simt::RunProduct(product, sum.registers, sum.late);
  }
  for (int s = 0; s < all.sum_count; ++s) {
    const simt::AsyncProducts::Sum& sum = all.sums[s];
    for (int i = 0; i < sum.registers; ++i) {
      if (__float_as_uint(sum.early[i]) != __float_as_uint(sum.late[i]))
        simt::Fail("shared memory changed while a product read it");
      sum.d[i] = sum.late[i];
    }
  }
  all.Clear();
}

template <class T, bool kTransposed, int kEights>
void MmaAsync(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  static_assert(kEights == 8 || kEights == 16);
  constexpr int kRegisters = 4 * kEights;
  simt::AsyncProducts& all = simt::CurrentProducts();
  if (!all.begun) simt::Fail("a product without WarpgroupBegin");
  if (b >> 62 != 1 || (b >> 49 & 7) != 0 || ((b & 0x3fff) << 4) % 1024 >= 128)
    simt::Fail("a matrix is not swizzled by 128 bytes, or not aligned");
  if (all.count == simt::AsyncProducts::kMost) simt::Fail("too many products");
  int s = 0;
  while (s < all.sum_count && all.sums[s].d != &d[0][0]) ++s;
  if (s == all.sum_count) {
    if (s == simt::AsyncProducts::kMostSums) simt::Fail("too many sums of products");
    simt::AsyncProducts::Sum& fresh = all.sums[all.sum_count++];
    fresh.d = &d[0][0];
    fresh.registers = kRegisters;
    for (int i = 0; i < kRegisters; ++i) {
      fresh.early[i] = fresh.late[i] = fresh.d[i];
      fresh.d[i] = __uint_as_float(0x7fffffffu);  // not to be read yet
    }
  }
  auto& product = all.products[all.count++];
  ++all.open;
  product.sum = s;
  product.b = b;
  product.f16 = std::is_same_v<T, __half>;
  product.transposed = kTransposed;
  product.add = add;
  simt::MeetQuad(a, product.a);
  simt::RunProduct(product, kRegisters, all.sums[s].early);
}

}  // namespace coppice::kernels::cuda::dev
