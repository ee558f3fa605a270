// y = x w^T for at most 64 rows. Such a product is bound by reading w. So w takes the side of the
// tensor instructions that has 16 rows, and x the side that has 8: hardly anything is padded. A
// block computes 64 outputs of all rows over a run of the inputs; where 64 outputs a block are too
// few blocks to keep the device busy, several blocks share the inputs of a tile ("split-K"): the last
// to finish adds their sums, or where there are clusters all of them do. With SwiGLU a block computes
// 32 gates and the 32 ups that belong to them.
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/gemm_skinny.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;

constexpr int kThreads = 128;
constexpr int kTile = kSkinnyTile, kDepth = kSkinnyDepth;
constexpr int kGates = kTile / 2;             // gates per tile, with SwiGLU
constexpr int kStride = kDepth + 8;           // elements; the rows of a matrix miss no bank
constexpr int kPieces = kDepth / 8;           // pieces of 16 bytes in a row of a stage
constexpr int kRowStep = kThreads / kPieces;  // rows of a stage that the threads copy at once

// kGroups: rows of x, in groups of 8.
template <int kGroups_>
struct SkinnyShape {
  static constexpr int kGroups = kGroups_;
  static constexpr int kRows = 8 * kGroups;
  static constexpr int kStages = kGroups <= 2 ? 6 : kGroups <= 4 ? 5 : 4;
  static constexpr int kStage = (kTile + kRows) * kStride;  // elements
  static constexpr int kSumStride = kTile + 4;              // floats of a row of sums
  static constexpr int kSharedBytes = kStages * kStage * 2;
  static_assert(kRows * kSumStride * 4 <= kSharedBytes);
};

// The sums of one lane: of group j the outputs g, g + 8 of its warp and the rows 2t, 2t + 1, g =
// lane / 4, t = lane % 4, in the order (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
template <class S>
struct SkinnySums {
  float value[S::kGroups][4] = {};
};

template <class S>
struct SkinnyBlock {
  const SkinnyArgs& args;
  bf16* stages;  // [kStages][w [kTile, kStride], x [kRows, kStride]]

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  DEV_FUNCTION int Warp() const { return Thread() / dev::kWarpSize; }
  // What a block stores: outputs, or with SwiGLU pairs of a gate and an up.
  DEV_FUNCTION int64_t Columns() const { return args.gated ? args.outputs / 2 : args.outputs; }
  DEV_FUNCTION int64_t FirstColumn() const {
    return int64_t{args.gated ? kGates : kTile} * blockIdx.x;
  }
  // Row i of the tile as a row of w. After the last column: any row, or none.
  DEV_FUNCTION int64_t OutputOf(int i) const {
    if (!args.gated || i < kGates) return FirstColumn() + i;
    return Columns() + FirstColumn() + i - kGates;
  }

  // The run of stages of the block's split.
  struct Run {
    int begin, end;
  };
  DEV_FUNCTION Run StagesOf(unsigned split) const {
    const auto total = static_cast<unsigned>((args.inputs + kDepth - 1) / kDepth);
    const auto splits = static_cast<unsigned>(args.splits);
    return {static_cast<int>(total * split / splits),
            static_cast<int>(total * (split + 1) / splits)};
  }

  // The pieces of stages that a thread copies: of the rows Thread() / kPieces, + kRowStep, ...
  template <int kCount>
  struct Pieces {
    const bf16* from[kCount];  // of stage 0
    bool there[kCount];        // else zeros
  };
  using WeightPieces = Pieces<kTile / kRowStep>;
  using XPieces = Pieces<(S::kRows + kRowStep - 1) / kRowStep>;
  DEV_FUNCTION int Row() const { return Thread() / kPieces; }
  DEV_FUNCTION int Input() const { return Thread() % kPieces * 8; }

  DEV_FUNCTION WeightPieces PiecesOfWeights() const {
    WeightPieces pieces;
    DEV_UNROLL
    for (int n = 0; n < kTile / kRowStep; ++n) {
      const int64_t row = OutputOf(n * kRowStep + Row());
      pieces.from[n] = static_cast<const bf16*>(args.w) + row * args.inputs + Input();
      pieces.there[n] = row < args.outputs;
    }
    return pieces;
  }
  DEV_FUNCTION XPieces PiecesOfX() const {
    XPieces pieces;
    DEV_UNROLL
    for (int n = 0; n * kRowStep < S::kRows; ++n) {
      const int row = n * kRowStep + Row();
      pieces.from[n] = static_cast<const bf16*>(args.x) + row * args.inputs + Input();
      pieces.there[n] = row < args.rows;
    }
    return pieces;
  }

  // Start the copies of one stage's weights, and of its x. What is not there becomes zeros.
  DEV_FUNCTION void LoadWeights(const WeightPieces& pieces, int at, int stage) const {
    bf16* const w = stages + stage * S::kStage + Row() * kStride + Input();
    const int64_t first = int64_t{at} * kDepth;
    const bool inside = first + Input() < args.inputs;
    DEV_UNROLL
    for (int n = 0; n < kTile / kRowStep; ++n) {
      dev::CopyConstantAsync16(w + n * kRowStep * kStride, pieces.from[n] + first,
                               inside && pieces.there[n]);
    }
  }
  DEV_FUNCTION void LoadX(const XPieces& pieces, int at, int stage) const {
    bf16* const x = stages + stage * S::kStage + (kTile + Row()) * kStride + Input();
    const int64_t first = int64_t{at} * kDepth;
    const bool inside = first + Input() < args.inputs;
    DEV_UNROLL
    for (int n = 0; n * kRowStep < S::kRows; ++n) {
      if (n * kRowStep + Row() >= S::kRows) continue;
      dev::CopyAsync16(x + n * kRowStep * kStride, pieces.from[n] + first,
                       inside && pieces.there[n]);
    }
  }

  // Before WaitForPrevious: starts the copies of the first stages' weights, a group for each.
  DEV_FUNCTION void Prefetch(const Run& run, const WeightPieces& weights) const {
    DEV_UNROLL
    for (int i = 0; i < S::kStages - 1; ++i) {
      if (run.begin + i < run.end) LoadWeights(weights, run.begin + i, i);
      dev::CopyCommit();
    }
  }

  // The x of these stages, by ordinary loads: groups end in order, so a copy of x would land only
  // behind the weights of all of them.
  DEV_FUNCTION void LoadFirstX(const Run& run, const XPieces& pieces) const {
    constexpr int kEach = (S::kRows + kRowStep - 1) / kRowStep;
    dev::Pack<bf16, 8> values[S::kStages - 1][kEach] = {};
    DEV_UNROLL
    for (int i = 0; i < S::kStages - 1; ++i) {
      const int64_t first = int64_t{run.begin + i} * kDepth;
      const bool inside = run.begin + i < run.end && first + Input() < args.inputs;
      DEV_UNROLL
      for (int n = 0; n < kEach; ++n) {
        if (inside && pieces.there[n]) values[i][n] = dev::LoadPack<8>(pieces.from[n] + first);
      }
    }
    bf16* const x = stages + (kTile + Row()) * kStride + Input();
    DEV_UNROLL
    for (int i = 0; i < S::kStages - 1; ++i) {
      DEV_UNROLL
      for (int n = 0; n < kEach; ++n) {
        if (n * kRowStep + Row() >= S::kRows) continue;
        dev::StorePack(&x[i * S::kStage + n * kRowStep * kStride], values[i][n]);
      }
    }
  }

  DEV_FUNCTION void Multiply(int stage, SkinnySums<S>* sums) const {
    const int lane = Lane();
    const bf16* const w = stages + stage * S::kStage;
    const bf16* const w_row = w + (Warp() * 16 + lane % 16) * kStride + lane / 16 * 8;
    const bf16* const x_row = w + (kTile + lane % 8) * kStride + lane / 8 * 8;
    DEV_UNROLL
    for (int k = 0; k < kDepth; k += 32) {
      uint32_t a[4], next[4];
      dev::LoadMatrix4(a, w_row + k);
      dev::LoadMatrix4(next, w_row + k + 16);
      DEV_UNROLL
      for (int j = 0; j < S::kGroups; ++j) {
        uint32_t b[4];
        dev::LoadMatrix4(b, x_row + j * 8 * kStride + k);
        dev::Mma<dev::bf16>(sums->value[j], a, {b[0], b[1]});
        dev::Mma<dev::bf16>(sums->value[j], next, {b[2], b[3]});
      }
    }
  }

  // Sums the block's run of stages, after Prefetch. The copies of later stages run behind the
  // arithmetic.
  DEV_FUNCTION void Accumulate(const Run& run, const WeightPieces& weights,
                               SkinnySums<S>* sums) const {
    const XPieces x = PiecesOfX();
    LoadFirstX(run, x);
    int stage = 0, ahead = S::kStages - 1;
    for (int i = run.begin; i < run.end; ++i) {
      dev::CopyWait<S::kStages - 2>();
      __syncthreads();  // the copies of all threads are there, and stage `ahead` is read
      if (i + S::kStages - 1 < run.end) {
        LoadWeights(weights, i + S::kStages - 1, ahead);
        LoadX(x, i + S::kStages - 1, ahead);
      }
      dev::CopyCommit();
      Multiply(stage, sums);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
      ahead = ahead + 1 == S::kStages ? 0 : ahead + 1;
    }
    dev::CopyWait<0>();
    __syncthreads();  // shared memory is free
  }

  // This lane's sums of one split, group by group: neighbouring lanes have neighbouring values.
  DEV_FUNCTION float* Partial(int split, int group) const {
    const int64_t part = int64_t{blockIdx.x} * args.splits + split;
    return args.partials + ((part * S::kGroups + group) * kThreads + Thread()) * 4;
  }

  // Leaves the sums for the last block of the tile. The last block gets the sums of all blocks,
  // added in order.
  DEV_FUNCTION bool Join(uint32_t* arrived, SkinnySums<S>* sums) const {
    DEV_UNROLL
    for (int j = 0; j < S::kGroups; ++j) {
      const float* v = sums->value[j];
      dev::StorePack(Partial(static_cast<int>(blockIdx.y), j),
                     dev::Pack<float, 4>{{v[0], v[1], v[2], v[3]}});
    }
    __syncthreads();
    if (Thread() == 0) *arrived = dev::AtomicAddAcqRel(args.counters + blockIdx.x, 1);
    __syncthreads();
    if (*arrived + 1 != static_cast<uint32_t>(args.splits)) return false;
    DEV_UNROLL
    for (int j = 0; j < S::kGroups; ++j) {
      for (int e = 0; e < 4; ++e) sums->value[j][e] = 0.0f;
    }
    for (int split = 0; split < args.splits; ++split) {
      DEV_UNROLL
      for (int j = 0; j < S::kGroups; ++j) {
        const dev::Pack<float, 4> part = dev::LoadPack<4>(Partial(split, j));
        for (int e = 0; e < 4; ++e) sums->value[j][e] += part.value[e];
      }
    }
    if (Thread() == 0) args.counters[blockIdx.x] = 0;  // for the next launch
    return true;
  }

  // Puts the sums into shared memory, [kRows, kSumStride], where a thread finds eight neighbouring
  // outputs of a row.
  DEV_FUNCTION float* Spread(const SkinnySums<S>& sums) const {
    float* const rows = reinterpret_cast<float*>(stages);
    const int output = Warp() * 16 + Lane() / 4, row = Lane() % 4 * 2;
    DEV_UNROLL
    for (int j = 0; j < S::kGroups; ++j) {
      for (int e = 0; e < 4; ++e)
        rows[(j * 8 + row + e % 2) * S::kSumStride + output + e / 2 * 8] = sums.value[j][e];
    }
    return rows;
  }

  DEV_FUNCTION void Store(const SkinnySums<S>& sums) const {
    const float* const rows = Spread(sums);
    __syncthreads();
    StoreParts(0, 1, [&](int row, int output, float(&values)[8]) {
      for (int e = 0; e < 8; ++e) values[e] = rows[row * S::kSumStride + output + e];
    });
  }

  // The blocks of a tile, a cluster, each store a part of it, with the sums of all splits added in
  // order: the bits are those of Join.
  DEV_FUNCTION void StoreTogether(const SkinnySums<S>& sums) const {
    float* const rows = Spread(sums);
    dev::ClusterBarrier();  // the sums of all blocks are there
    StoreParts(static_cast<int>(blockIdx.y), args.splits,
               [&](int row, int output, float(&values)[8]) {
                 for (int e = 0; e < 8; ++e) values[e] = 0.0f;
                 for (int split = 0; split < args.splits; ++split) {
                   float low[4], high[4];
                   dev::LoadPeer4(low, rows + row * S::kSumStride + output, split);
                   dev::LoadPeer4(high, rows + row * S::kSumStride + output + 4, split);
                   for (int e = 0; e < 4; ++e) {
                     values[e] += low[e];
                     values[4 + e] += high[e];
                   }
                 }
               });
    dev::ClusterBarrier();  // no block ends while others read its sums
  }

  // Stores the parts number `part`, + parts, ... of the tile, each eight outputs of a row.
  // sums_of(row, output, values): the sums of eight outputs of the tile.
  template <class SumsOf>
  DEV_FUNCTION void StoreParts(int part, int parts, const SumsOf& sums_of) const {
    const int packs = (args.gated ? kGates : kTile) / 8;
    for (int i = Thread() * parts + part; i < args.rows * packs; i += kThreads * parts) {
      const int r = i / packs, first = i % packs * 8;
      const int64_t column = FirstColumn() + first;
      if (column >= Columns()) continue;
      float values[8];
      sums_of(r, first, values);
      const int64_t place = r * Columns() + column;
      if (args.gated) {
        float ups[8];
        sums_of(r, kGates + first, ups);
        StoreGated(values, ups, place, column);
      } else if (args.y_type == DType::kF32) {
        StoreEight<float, 4>(values, place, column);
      } else {
        StoreEight<bf16, 8>(values, place, column);
      }
    }
  }

  // Gates and ups are rounded before they meet, as the two launches that this replaces would do.
  DEV_FUNCTION void StoreGated(const float (&gates)[8], const float (&ups)[8], int64_t place,
                               int64_t column) const {
    const float* const bias = args.bias == nullptr ? nullptr : args.bias + column;
    dev::Pack<bf16, 8> out;
    DEV_UNROLL
    for (int i = 0; i < 8; ++i) {
      float gate = gates[i], up = ups[i];
      if (bias != nullptr) {
        gate += bias[i];
        up += bias[Columns() + i];
      }
      gate = dev::ToFloat(dev::FromFloat<bf16>(gate));
      up = dev::ToFloat(dev::FromFloat<bf16>(up));
      out.value[i] = dev::FromFloat<bf16>(Silu(gate) * up);
    }
    dev::StorePack(static_cast<bf16*>(args.y) + place, out);
  }

  // kWide: values of T in 16 bytes.
  template <class T, int kWide>
  DEV_FUNCTION void StoreEight(const float (&values)[8], int64_t place, int64_t output) const {
    T* const y = static_cast<T*>(args.y) + place;
    DEV_UNROLL
    for (int first = 0; first < 8; first += kWide) {
      dev::Pack<T, kWide> out, before;
      if (args.accumulate) before = dev::LoadPack<kWide>(y + first);
      DEV_UNROLL
      for (int i = 0; i < kWide; ++i) {
        float value = values[first + i];
        if (args.bias != nullptr) value += args.bias[output + first + i];
        if (args.accumulate) value += dev::ToFloat(before.value[i]);
        out.value[i] = dev::FromFloat<T>(value);
      }
      dev::StorePack(y + first, out);
    }
  }
};

template <class S>
DEV_KERNEL void DEV_BOUNDS(kThreads, 2) MultiplySkinny(SkinnyArgs args) {
  DEV_DYNAMIC_SHARED(bf16, memory);
  DEV_SHARED(uint32_t, arrived, 1);
  const SkinnyBlock<S> block = {args, memory};
  const auto run = block.StagesOf(blockIdx.y);
  const auto weights = block.PiecesOfWeights();
  block.Prefetch(run, weights);
  dev::WaitForPrevious();
  SkinnySums<S> sums;
  block.Accumulate(run, weights, &sums);
  if constexpr (dev::kClusters) {
    if (args.clustered) return block.StoreTogether(sums);
  }
  if (args.splits > 1 && !block.Join(arrived, &sums)) return;
  block.Store(sums);
}

template <int kGroups>
void LaunchSkinny(const SkinnyArgs& args, cudaStream_t stream) {
  using Shape = SkinnyShape<kGroups>;
  const dim3 grid(static_cast<unsigned>(SkinnyTiles(args.outputs)),
                  static_cast<unsigned>(args.splits));
  dev::Declare("skinny product", [args] {
    // Weights once, activations for each tile of outputs, partial sums written and read unless they
    // stay in the cluster.
    const int64_t sums = args.rows * args.outputs;
    const int64_t y_bytes = sums * (args.y_type == DType::kF32 ? 4 : 2) / (args.gated ? 2 : 1);
    const int64_t partial = args.splits > 1 && !args.clustered ? 8 * sums * args.splits : 0;
    dev::Cost cost = {2 * args.inputs * (args.outputs + SkinnyTiles(args.outputs) * args.rows) +
                          y_bytes * (args.accumulate ? 2 : 1) + partial,
                      2 * sums * args.inputs};
    cost.cold_bytes = 2 * args.inputs * args.outputs;
    // Weights and inputs into shared memory, and out of it: inputs by each of the four warps.
    cost.shared_bytes =
        2 * args.inputs * SkinnyTiles(args.outputs) * (2 * kTile + 5 * Shape::kRows);
    // Joins write, count and read; in a cluster they read.
    cost.dependent_loads = args.splits == 1 ? 1 : args.clustered ? 2 : 4;
    // Of a warp for a stage, by groups of rows (machine code of nvcc 13.0, sm_90).
    constexpr int kStageInstructions[] = {81, 89, 96, 102, 119, 125, 139, 139};
    cost.instructions = SkinnyTiles(args.outputs) * MostSkinnySplits(args.inputs) *
                        (kThreads / dev::kWarpSize) * kStageInstructions[Shape::kGroups - 1];
    cost.resident = 3;
    cost.block_bytes = (Shape::kStages - 1) * int64_t{kTile + Shape::kRows} * kDepth * 2;
    cost.early_bytes = (Shape::kStages - 1) * int64_t{kTile} * kDepth * 2;
    return cost;
  });
  dev::LaunchClusters(MultiplySkinny<Shape>, args.clustered ? args.splits : 1, grid, dim3(kThreads),
                      Shape::kSharedBytes, stream, args);
}

}  // namespace

void GemmSkinny(const SkinnyArgs& args, cudaStream_t stream) {
  switch (SkinnyGroups(args.rows)) {
    case 1:
      return LaunchSkinny<1>(args, stream);
    case 2:
      return LaunchSkinny<2>(args, stream);
    case 3:
      return LaunchSkinny<3>(args, stream);
    case 4:
      return LaunchSkinny<4>(args, stream);
    case 5:
      return LaunchSkinny<5>(args, stream);
    case 6:
      return LaunchSkinny<6>(args, stream);
    default:
      return LaunchSkinny<8>(args, stream);
  }
}

}  // namespace coppice::kernels::cuda
