// A block's tile of a product y = x w^T whose sums have a fixed order, by tensor cores. For .cu
// files. The weights take the side of the instructions that has 16 rows, as in gemm_skinny.cu, and
// the inputs enter an output's sum 16 at a time. That is so in tiles of every size, so that a step
// of one row and a step of a thousand form the same sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// A block of kOutputWarps x kRowWarps warps; each computes 16 kHeights outputs of 8 kGroups rows.
template <class T, int kOutputWarps_, int kRowWarps_, int kHeights_, int kGroups_, int kDepth_,
          int kStages_>
struct TileShape {
  using Type = T;
  static constexpr int kOutputWarps = kOutputWarps_, kRowWarps = kRowWarps_;
  static constexpr int kHeights = kHeights_, kGroups = kGroups_;
  static constexpr int kDepth = kDepth_;  // inputs per stage
  static constexpr int kStages = kStages_;
  static constexpr int kThreads = dev::kWarpSize * kOutputWarps * kRowWarps;
  static constexpr int kOutputs = 16 * kHeights * kOutputWarps;
  static constexpr int kRows = 8 * kGroups * kRowWarps;
  static constexpr int kStride = kDepth + 8;  // elements; the rows of a matrix miss no bank
  static constexpr int kPieces = kDepth / 8;  // pieces of 16 bytes in a row of a stage
  static constexpr int kStage = (kOutputs + kRows) * kStride;  // elements
  static constexpr int kSumStride = kOutputs + 4;              // floats of a row of sums
  static constexpr int kSharedBytes = std::max(kStages * kStage * 2, kRows* kSumStride * 4);
  static constexpr int kSums = kHeights * kGroups;  // groups of four sums
};

// The sums of one lane: of tile (height, group) the outputs g, g + 8 and the rows 2t, 2t + 1, g =
// lane / 4, t = lane % 4, in the order (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
template <class S>
struct LaneSums {
  float value[S::kSums][4];

  DEV_FUNCTION void Clear() {
    DEV_UNROLL
    for (int i = 0; i < S::kSums; ++i) {
      for (int e = 0; e < 4; ++e) value[i][e] = 0.0f;
    }
  }
  DEV_FUNCTION void Add(const LaneSums& run) {
    DEV_UNROLL
    for (int i = 0; i < S::kSums; ++i) {
      for (int e = 0; e < 4; ++e) value[i][e] += run.value[i][e];
    }
  }
};

// The sums of a tile over its runs of inputs: block (x, y) is the tile, z the run.
template <class S>
struct RunSums {
  float* partials;     // [tiles][runs][kSums][kThreads][4]
  uint32_t* counters;  // [tiles], zero before and after
  int runs;

  DEV_FUNCTION int64_t Tile() const { return int64_t{blockIdx.y} * gridDim.x + blockIdx.x; }
  // This lane's sums of one run, four by four: neighbouring lanes have neighbouring values.
  DEV_FUNCTION float* Partial(int run, int i) const {
    return partials + (((Tile() * runs + run) * S::kSums + i) * S::kThreads + threadIdx.x) * 4;
  }

  // Leaves the sums for the last block of the tile. That block gets those of all, added in order.
  // *arrived is in shared memory.
  DEV_FUNCTION bool Join(uint32_t* arrived, LaneSums<S>* sums) const {
    DEV_UNROLL
    for (int i = 0; i < S::kSums; ++i) {
      const float* v = sums->value[i];
      dev::StorePack(Partial(static_cast<int>(blockIdx.z), i),
                     dev::Pack<float, 4>{{v[0], v[1], v[2], v[3]}});
    }
    uint32_t* const counter = counters + Tile();
    __syncthreads();
    if (threadIdx.x == 0) *arrived = dev::AtomicAddAcqRel(counter, 1);
    __syncthreads();
    if (*arrived + 1 != static_cast<uint32_t>(runs)) return false;
    sums->Clear();
    for (int run = 0; run < runs; ++run) {
      DEV_UNROLL
      for (int i = 0; i < S::kSums; ++i) {
        const dev::Pack<float, 4> part = dev::LoadPack<4>(Partial(run, i));
        for (int e = 0; e < 4; ++e) sums->value[i][e] += part.value[e];
      }
    }
    if (threadIdx.x == 0) *counter = 0;  // for the next launch
    return true;
  }
};

// The sums of all lanes in `rows`, [kRows, kSumStride] in shared memory, for all threads. The warps of
// the block: first those of other outputs, then those of other rows.
template <class S>
DEV_FUNCTION const float* Spread(const LaneSums<S>& sums, float* rows) {
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int output = warp % S::kOutputWarps * S::kHeights * 16 + lane / 4;
  const int row = warp / S::kOutputWarps * S::kGroups * 8 + lane % 4 * 2;
  DEV_UNROLL
  for (int i = 0; i < S::kSums; ++i) {
    const int h = i / S::kGroups, j = i % S::kGroups;
    for (int e = 0; e < 4; ++e) {
      rows[(j * 8 + row + e % 2) * S::kSumStride + output + h * 16 + e / 2 * 8] = sums.value[i][e];
    }
  }
  __syncthreads();
  return rows;
}

template <class S>
struct ProductTile {
  using T = typename S::Type;
  // A thread copies the same piece of kCopies rows of a stage, kRowStep apart.
  static constexpr int kRowStep = S::kThreads / S::kPieces, kStageRows = S::kOutputs + S::kRows;
  static constexpr int kCopies = (kStageRows + kRowStep - 1) / kRowStep;
  static_assert(kCopies < 32);

  // Those rows, from the thread's piece of the first stage on. Absent ones have any address that
  // may be read, and zeros in their place.
  struct Source {
    const T* row[kCopies];
    uint32_t there = 0;  // bit i: row[i] is
    int inputs = 0;

    DEV_FUNCTION bool whole() const { return there == (uint32_t{1} << kCopies) - 1; }
  };

  T* stages;  // [kStages][w [kOutputs, kStride], x [kRows, kStride]]

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  DEV_FUNCTION int OutputWarp() const { return Thread() / dev::kWarpSize % S::kOutputWarps; }
  DEV_FUNCTION int RowWarp() const { return Thread() / dev::kWarpSize / S::kOutputWarps; }

  // row_of(i): row i of the stages, first the kOutputs of weights, then the kRows of x, from its
  // first input on; nullptr where it is absent. Row 0 is not.
  template <class RowOf>
  DEV_FUNCTION Source SourceOf(int64_t inputs, const RowOf& row_of) const {
    Source source;
    source.inputs = static_cast<int>(inputs);
    const int piece = Thread() % S::kPieces * 8;
    const T* const any = row_of(0);
    DEV_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int at = Thread() / S::kPieces + i * kRowStep;
      const T* const row = HasRow(i, at) ? row_of(at) : any;
      source.row[i] = (row == nullptr ? any : row) + piece;
      source.there |= uint32_t{row != nullptr} << i;
    }
    return source;
  }
  // Whether the stage has a row for this copy of the thread.
  DEV_FUNCTION static bool HasRow(int copy, int row) {
    return (copy + 1) * kRowStep <= kStageRows || row < kStageRows;
  }

  // Starts the copies of inputs [first, first + kDepth) of the rows. What is not there becomes
  // zeros.
  DEV_FUNCTION void Load(int first, int stage, const Source& source) const {
    const int at = Thread() / S::kPieces, piece = Thread() % S::kPieces * 8;
    T* const to = stages + stage * S::kStage + at * S::kStride + piece;
    if (source.whole() && first + S::kDepth <= source.inputs) {
      DEV_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        if (HasRow(i, at + i * kRowStep))
          dev::CopyAsync16(to + i * kRowStep * S::kStride, source.row[i] + first);
      }
      return;
    }
    const bool inside = first + piece < source.inputs;
    DEV_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const bool valid = inside && (source.there >> i & 1) != 0;
      if (HasRow(i, at + i * kRowStep))
        dev::CopyAsync16(to + i * kRowStep * S::kStride, source.row[i] + (inside ? first : 0),
                         valid);
    }
  }

  DEV_FUNCTION void Multiply(int stage, LaneSums<S>* sums) const {
    const int lane = Lane();
    const T* const w = stages + stage * S::kStage;
    const T* const w_row =
        w + (OutputWarp() * S::kHeights * 16 + lane % 16) * S::kStride + lane / 16 * 8;
    const T* const x_row =
        w + (S::kOutputs + RowWarp() * S::kGroups * 8 + lane % 8) * S::kStride + lane / 8 * 8;
    DEV_UNROLL
    for (int k = 0; k < S::kDepth; k += 32) {
      uint32_t a[S::kHeights][4], next[S::kHeights][4];
      DEV_UNROLL
      for (int h = 0; h < S::kHeights; ++h) {
        dev::LoadMatrix4(a[h], w_row + h * 16 * S::kStride + k);
        dev::LoadMatrix4(next[h], w_row + h * 16 * S::kStride + k + 16);
      }
      DEV_UNROLL
      for (int j = 0; j < S::kGroups; ++j) {
        uint32_t b[4];
        dev::LoadMatrix4(b, x_row + j * 8 * S::kStride + k);
        DEV_UNROLL
        for (int h = 0; h < S::kHeights; ++h) {
          dev::Mma<T>(sums->value[h * S::kGroups + j], a[h], {b[0], b[1]});
          dev::Mma<T>(sums->value[h * S::kGroups + j], next[h], {b[2], b[3]});
        }
      }
    }
  }

  // Adds the inputs of stages [begin, end) to the sums. The copies of later stages go on behind the
  // arithmetic.
  DEV_FUNCTION void Sum(int begin, int end, const Source& source, LaneSums<S>* sums) const {
    for (int i = 0; i < S::kStages - 1; ++i) {
      if (begin + i < end) Load((begin + i) * S::kDepth, i, source);
      dev::CopyCommit();
    }
    int stage = 0, ahead = S::kStages - 1;
    for (int i = begin; i < end; ++i) {
      dev::CopyWait<S::kStages - 2>();
      __syncthreads();  // the copies of all threads are there, and stage `ahead` is read
      if (i + S::kStages - 1 < end) Load((i + S::kStages - 1) * S::kDepth, ahead, source);
      dev::CopyCommit();
      Multiply(stage, sums);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
      ahead = ahead + 1 == S::kStages ? 0 : ahead + 1;
    }
    dev::CopyWait<0>();
    __syncthreads();  // shared memory is free
  }
};

}  // namespace coppice::kernels::cuda
