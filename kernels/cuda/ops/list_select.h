// Exact choice of the largest keys by one block, for .cu files. Keys are order-preserving bits of
// floats; of equal keys the lower index wins, so the choice depends on nothing else. No atomics: a
// threshold is found bit by bit, by counting.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectWarps = kSelectThreads / dev::kWarpSize;
static_assert(kSelectWarps <= dev::kWarpSize);  // a lane for each warp

// Bits that order as the floats do, -0 as 0; 0 for NaN and -inf, which are never chosen.
DEV_FUNCTION uint32_t KeyBits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (!(value > __uint_as_float(0xff800000u))) return 0;
  if (bits == 0x80000000u) return 0x80000000u;
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
// The float of a key that is not 0.
DEV_FUNCTION float KeyValue(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// Sums and minima over the block, one barrier each: two rows of shared memory take turns. All
// threads call the same.
class BlockReduce {
 public:
  DEV_FUNCTION int Sum(int value) {
    const unsigned of_warp = __reduce_add_sync(dev::kFullWarp, static_cast<unsigned>(value));
    return static_cast<int>(__reduce_add_sync(dev::kFullWarp, Exchange(of_warp, 0)));
  }
  DEV_FUNCTION uint32_t Min(uint32_t value) {
    const uint32_t of_warp = __reduce_min_sync(dev::kFullWarp, value);
    return __reduce_min_sync(dev::kFullWarp, Exchange(of_warp, 0xffffffffu));
  }
  // The sum of the values of the threads before this one; *total is that of all.
  DEV_FUNCTION int SumBefore(int value, int* total) {
    const int lane = Lane();
    int sum = value;
    for (int step = 1; step < dev::kWarpSize; step *= 2) {
      const int before = __shfl_up_sync(dev::kFullWarp, sum, step);
      if (lane >= step) sum += before;
    }
    return sum - value + WarpsBefore(__shfl_sync(dev::kFullWarp, sum, dev::kWarpSize - 1), total);
  }
  // The same of values of the warps.
  DEV_FUNCTION int WarpsBefore(int of_warp, int* total) {
    const uint32_t of_lane = Exchange(static_cast<uint32_t>(of_warp), 0);
    *total = static_cast<int>(__reduce_add_sync(dev::kFullWarp, of_lane));
    const bool precedes = Lane() < static_cast<int>(threadIdx.x) / dev::kWarpSize;
    return static_cast<int>(__reduce_add_sync(dev::kFullWarp, precedes ? of_lane : 0u));
  }
  // A value that the maxima of at least `want` warps reach, or 0: the want-th largest of them, each
  // counted once.
  DEV_FUNCTION uint32_t ReachedByWarps(int want, uint32_t value) {
    uint32_t of_lane = Exchange(__reduce_max_sync(dev::kFullWarp, value), 0);
    uint32_t largest = 0;
    for (int i = 0; i < want; ++i) {
      largest = __reduce_max_sync(dev::kFullWarp, of_lane);
      if (of_lane == largest) of_lane = 0;
    }
    return largest;
  }

 private:
  DEV_FUNCTION static int Lane() { return static_cast<int>(threadIdx.x) % dev::kWarpSize; }
  // Lane w gets the value of warp w; `none` where there is no such warp. The row is overwritten
  // after the next barrier but one.
  DEV_FUNCTION uint32_t Exchange(uint32_t value, uint32_t none) {
    DEV_SHARED(uint32_t, rows, 2 * kSelectWarps);
    uint32_t* const row = rows + turn_ * kSelectWarps;
    const int lane = Lane();
    if (lane == 0) row[threadIdx.x / dev::kWarpSize] = value;
    __syncthreads();
    turn_ = 1 - turn_;
    return lane < kSelectWarps ? row[lane] : none;
  }

  int turn_ = 0;
};

// Takes keys above `key`, and those equal to it whose index is below `end`.
struct KeyCut {
  uint32_t key = 1, end = 0xffffffffu;
  DEV_FUNCTION bool Takes(uint32_t other, uint32_t index) const {
    return other > key || (other == key && index < end);
  }
};

// The largest t with count(t) >= want, for a count that falls as t grows; 0 when there is none
// above 0. Ends early when a count is `want` itself.
template <class Count>
DEV_FUNCTION uint32_t LargestWith(int want, int bits, Count count) {
  uint32_t t = 0;
  for (int bit = bits - 1; bit >= 0; --bit) {
    const uint32_t higher = t | 1u << bit;
    const int n = count(higher);
    if (n >= want) t = higher;
    if (n == want) break;
  }
  return t;
}

template <class Values, class Test>
DEV_FUNCTION int CountIf(const Values& values, BlockReduce* block, Test test) {
  int n = 0;
  values.Each([&](uint32_t key, uint32_t index) { n += test(key, index) ? 1 : 0; });
  return block->Sum(n);
}

// A cut that takes the `want` largest of the block's keys, and at most `room` in all; all of them
// when there are fewer. Values::Each(f) calls f(key, index) for every value of the thread.
template <class Values>
DEV_FUNCTION KeyCut FindCut(const Values& values, int want, int room, int index_bits,
                            BlockReduce* block) {
  if (want <= kSelectThreads) {  // the want-th largest is at least that of the threads' maxima
    uint32_t largest = 0;
    values.Each([&](uint32_t key, uint32_t) { largest = max(largest, key); });
    const uint32_t bound =
        LargestWith(want, 32, [&](uint32_t t) { return block->Sum(largest >= t ? 1 : 0); });
    KeyCut cut;
    cut.key = max(bound, 1u);
    const int taken =
        CountIf(values, block, [&](uint32_t key, uint32_t i) { return cut.Takes(key, i); });
    if (taken <= room) return cut;
  }
  const auto at_least = [&](uint32_t t) {
    return CountIf(values, block, [&](uint32_t key, uint32_t) { return key >= t; });
  };
  KeyCut cut;
  cut.key = LargestWith(want, 32, at_least);
  if (cut.key == 0) return KeyCut();
  if (at_least(cut.key) <= want) return cut;
  const int above = CountIf(values, block, [&](uint32_t key, uint32_t) { return key > cut.key; });
  // Takes the lowest indices of equal keys: the largest end that has too few of them, and one more.
  const int ties = want - above;
  uint32_t end = 0;
  for (int bit = index_bits - 1; bit >= 0; --bit) {
    const uint32_t higher = end | 1u << bit;
    const int n = CountIf(values, block, [&](uint32_t key, uint32_t index) {
      return key == cut.key && index < higher;
    });
    if (n < ties) end = higher;
  }
  cut.end = end + 1;
  return cut;
}

inline constexpr int kRoom = 2048;  // keys of which a block chooses

// Calls write(place, key, index) for the `want` largest keys, places from 0 on without gaps, and
// returns how many there were. *least: the least of their keys. want <= kRoom; keys of equal value
// differ in their index, which has `index_bits` bits.
template <class Values, class Write>
DEV_FUNCTION int SelectLargest(const Values& values, int want, int index_bits, BlockReduce* block,
                               uint32_t* least, Write write) {
  DEV_SHARED(uint32_t, keys, kRoom);
  DEV_SHARED(uint32_t, indices, kRoom);
  const KeyCut cut = FindCut(values, want, /*room=*/max(want, kRoom / 2), index_bits, block);
  int taken = 0;
  values.Each([&](uint32_t key, uint32_t index) { taken += cut.Takes(key, index) ? 1 : 0; });
  int total = 0;
  int place = block->SumBefore(taken, &total);
  values.Each([&](uint32_t key, uint32_t index) {
    if (!cut.Takes(key, index)) return;
    keys[place] = key;
    indices[place++] = index;
  });
  __syncthreads();
  uint32_t lowest = 0xffffffffu;
  for (int i = static_cast<int>(threadIdx.x); i < total; i += kSelectThreads) {
    const uint32_t key = keys[i], index = indices[i];
    int rank = i;
    if (total > want) {  // the cut took more than it should: each counts those before it
      rank = 0;
      for (int j = 0; j < total; ++j) {
        rank += keys[j] > key || (keys[j] == key && indices[j] < index) ? 1 : 0;
      }
    }
    if (rank >= want) continue;
    lowest = min(lowest, key);
    write(rank, key, index);
  }
  *least = block->Min(lowest);
  return min(total, want);
}

}  // namespace coppice::kernels::cuda
