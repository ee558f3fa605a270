// y = x w^T with w in blocks (block_product.h). The weights take the side of the tensor instructions
// that has 16 rows, a panel for each warp, as in gemm_skinny.cu. The stages of asynchronous copies
// hold codes; a lane turns those of its fragment into values right before it multiplies them.
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/cuda/ops/block_product.h"
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/product_tile.h"
#include "kernels/cuda/ops/row_product.h"

namespace coppice::kernels::cuda {
namespace {

static_assert(kRunUnit == kBlockUnit);

// T: of x. kGroups: rows of a block, in groups of 8.
template <class T, bool kFourBits_, int kGroups_>
struct BlockShape {
  using Type = T;
  static constexpr bool kFourBits = kFourBits_;
  static constexpr int kOutputWarps = 4, kRowWarps = 1, kHeights = 1, kGroups = kGroups_;
  static constexpr int kThreads = dev::kWarpSize * kOutputWarps;
  static constexpr int kOutputs = static_cast<int>(kBlockPanel) * kOutputWarps;
  static constexpr int kRows = 8 * kGroups;
  static constexpr int kUnits = 2;  // of a stage
  static constexpr int kDepth = static_cast<int>(kBlockUnit) * kUnits;
  static constexpr int kUnitBytes = static_cast<int>(BlockUnitBytes(kFourBits));
  static constexpr int kPanelBytes = kUnits * kUnitBytes;
  static constexpr int kStride = kDepth + 8;  // elements of a row of x; rows miss no bank
  static constexpr int kWeightBytes = kOutputWarps * kPanelBytes;
  static constexpr int kStageBytes = kWeightBytes + kRows * kStride * 2;
  static constexpr int kStages = kGroups <= 2 ? 6 : kGroups <= 4 ? 4 : 3;
  static constexpr int kSumStride = kOutputs + 4;  // floats of a row of sums
  static constexpr int kSharedBytes = std::max(kStages * kStageBytes, kRows* kSumStride * 4);
  static constexpr int kSums = kGroups;
};

// What turns the codes of an output's block into values: byte b, as the float 1 + b 2^-15, times
// `factor` plus `offset` is scale (b - zero). All of it is exact in f32.
struct BlockScale {
  float factor = 0, offset = 0;
};
template <bool kFourBits>
DEV_FUNCTION BlockScale ScaleOf(dev::f16 scale) {
  constexpr float kZero = kFourBits ? 8.0f : 128.0f;
  const float value = dev::ToFloat(scale);
  return {value * 32768.0f, value * -(32768.0f + kZero)};
}

// Byte i of a word as a value.
template <int i>
DEV_FUNCTION float ValueOfByte(uint32_t bytes, const BlockScale& scale) {
  const float code = __uint_as_float(dev::PickBytes(bytes, 0x3f800000u, 0x7604u | i << 4));
  return fmaf(code, scale.factor, scale.offset);
}

// A quarter (block_matrix.h): two values of the lower output and two of the upper.
template <class T>
DEV_FUNCTION void ValuesOfQuarter(uint32_t bytes, const BlockScale& lower, const BlockScale& upper,
                                  uint32_t* of_lower, uint32_t* of_upper) {
  *of_lower = dev::PackPair<T>(ValueOfByte<0>(bytes, lower), ValueOfByte<1>(bytes, lower));
  *of_upper = dev::PackPair<T>(ValueOfByte<2>(bytes, upper), ValueOfByte<3>(bytes, upper));
}

// Block (row tile, output tile, run), as in row_product.cu.
template <class S>
struct BlockTile {
  using T = typename S::Type;
  const BlockProductArgs& args;
  const int runs;
  uint8_t* const stages;  // [kStages][panels [kOutputWarps][kPanelBytes], x [kRows, kStride]]

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  DEV_FUNCTION int Warp() const { return Thread() / dev::kWarpSize; }
  DEV_FUNCTION int64_t FirstRow() const { return int64_t{S::kRows} * blockIdx.x; }
  // Columns of y: outputs, or with SwiGLU pairs of a gate and an up.
  DEV_FUNCTION int64_t Columns() const { return args.gated ? args.outputs / 2 : args.outputs; }
  DEV_FUNCTION int TileColumns() const { return args.gated ? S::kOutputs / 2 : S::kOutputs; }
  DEV_FUNCTION int64_t FirstColumn() const { return int64_t{TileColumns()} * blockIdx.y; }
  // The panel of this warp: of gates for the first warps, of ups for the others. Behind the last
  // panel it is the last, whose sums are then not stored.
  DEV_FUNCTION int64_t Panel() const {
    const int64_t first = FirstColumn() / kBlockPanel, panels = BlockPanels(Columns());
    const int64_t panel = first + (args.gated ? Warp() % 2 : Warp());
    return (panel < panels ? panel : panels - 1) + (args.gated && Warp() >= 2 ? panels : 0);
  }

  // Where this thread's copies of unit 0 come from. Rows behind the last are the last, too.
  struct Sources {
    const uint8_t* w;
    const T* x[S::kGroups];
    int unit;       // of the piece of x: 0 or 1 in a stage
    int64_t input;  // its first
  };
  static constexpr int kPieces = S::kDepth / 8;  // of 16 bytes in a row of x
  static constexpr int kRowStep = S::kThreads / kPieces;
  static_assert(kRowStep == 8);
  DEV_FUNCTION Sources FindSources() const {
    Sources from;
    from.w = static_cast<const uint8_t*>(args.w) +
             Panel() * BlockPanelBytes(S::kFourBits, args.inputs) + Lane() * 16;
    from.input = Thread() % kPieces * 8;
    from.unit = static_cast<int>(from.input / kBlockUnit);
    DEV_UNROLL
    for (int i = 0; i < S::kGroups; ++i) {
      const int64_t row = FirstRow() + Thread() / kPieces + i * kRowStep;
      from.x[i] = static_cast<const T*>(args.x) +
                  (row < args.rows ? row : args.rows - 1) * args.inputs + from.input;
    }
    return from;
  }

  // Starts the copies of units [unit, unit + kUnits). Those from `end` on, and inputs that are absent,
  // become zeros.
  DEV_FUNCTION void Load(const Sources& from, int unit, int end, uint8_t* to) const {
    constexpr int kUnitPieces = S::kUnitBytes / 16, kAll = S::kUnits * kUnitPieces;
    const uint8_t* const w = from.w + int64_t{unit} * S::kUnitBytes;
    uint8_t* const w_to = to + Warp() * S::kPanelBytes + Lane() * 16;
    const int there = (end - unit) * kUnitPieces - Lane();
    DEV_UNROLL
    for (int i = 0; i < kAll; i += dev::kWarpSize) {
      if (i + dev::kWarpSize > kAll && Lane() >= kAll - i) break;
      dev::CopyAsync16(w_to + i * 16, w + i * 16, i < there);
    }
    const int64_t first = int64_t{unit} * kBlockUnit;
    const bool inside = first + from.input < args.inputs && unit + from.unit < end;
    T* const x_to =
        reinterpret_cast<T*>(to + S::kWeightBytes) + Thread() / kPieces * S::kStride + from.input;
    DEV_UNROLL
    for (int i = 0; i < S::kGroups; ++i)
      dev::CopyAsync16(x_to + i * kRowStep * S::kStride, from.x[i] + first, inside);
  }

  // The fragments of this lane for a block of a unit: its first 16 inputs, then the others.
  DEV_FUNCTION void Fragments(const uint8_t* unit, int block, uint32_t (&a)[4],
                              uint32_t (&next)[4]) const {
    const int lane = Lane();
    const auto* const scales = reinterpret_cast<const dev::f16*>(unit) + lane / 4 * 4 + block * 2;
    const dev::Pack<dev::f16, 2> scale = dev::LoadPack<2>(scales);
    const BlockScale lower = ScaleOf<S::kFourBits>(scale.value[0]);
    const BlockScale upper = ScaleOf<S::kFourBits>(scale.value[1]);
    uint32_t quarters[4];
    if constexpr (S::kFourBits) {
      const auto* const codes =
          reinterpret_cast<const uint32_t*>(unit + kUnitScaleBytes) + lane * 4 + block * 2;
      const dev::Pack<uint32_t, 2> halves = dev::LoadPack<2>(codes);
      DEV_UNROLL
      for (int h = 0; h < 2; ++h) {
        quarters[2 * h] = halves.value[h] & 0x0f0f0f0fu;
        quarters[2 * h + 1] = halves.value[h] >> 4 & 0x0f0f0f0fu;
      }
    } else {
      const auto* const codes = reinterpret_cast<const uint32_t*>(unit + kUnitScaleBytes) +
                                (block * dev::kWarpSize + lane) * 4;
      const dev::Pack<uint32_t, 4> bytes = dev::LoadPack<4>(codes);
      DEV_UNROLL
      for (int q = 0; q < 4; ++q) quarters[q] = bytes.value[q];
    }
    ValuesOfQuarter<T>(quarters[0], lower, upper, &a[0], &a[1]);
    ValuesOfQuarter<T>(quarters[1], lower, upper, &a[2], &a[3]);
    ValuesOfQuarter<T>(quarters[2], lower, upper, &next[0], &next[1]);
    ValuesOfQuarter<T>(quarters[3], lower, upper, &next[2], &next[3]);
  }

  DEV_FUNCTION void Multiply(const uint8_t* from, LaneSums<S>* sums) const {
    const int lane = Lane();
    const uint8_t* const panel = from + Warp() * S::kPanelBytes;
    const T* const x_row =
        reinterpret_cast<const T*>(from + S::kWeightBytes) + lane % 8 * S::kStride + lane / 8 * 8;
    DEV_UNROLL
    for (int b = 0; b < 2 * S::kUnits; ++b) {
      uint32_t a[4], next[4];
      Fragments(panel + b / 2 * S::kUnitBytes, b % 2, a, next);
      DEV_UNROLL
      for (int j = 0; j < S::kGroups; ++j) {
        uint32_t x[4];
        dev::LoadMatrix4(x, x_row + j * 8 * S::kStride + b * 32);
        dev::Mma<T>(sums->value[j], a, {x[0], x[1]});
        dev::Mma<T>(sums->value[j], next, {x[2], x[3]});
      }
    }
  }

  // Adds a run to the sums. The copies of later stages go on behind the arithmetic.
  DEV_FUNCTION void SumRun(const Sources& from, int run, LaneSums<S>* sums) const {
    const int units = static_cast<int>(BlockUnits(args.inputs));
    const int begin = static_cast<int>(int64_t{units} * run / runs);
    const int end = static_cast<int>(int64_t{units} * (run + 1) / runs);
    constexpr int kAhead = S::kStages - 1;
    for (int i = 0; i < kAhead; ++i) {
      const int unit = begin + i * S::kUnits;
      if (unit < end) Load(from, unit, end, stages + i * S::kStageBytes);
      dev::CopyCommit();
    }
    uint8_t *stage = stages, *ahead = stages + kAhead * S::kStageBytes;
    for (int unit = begin; unit < end; unit += S::kUnits) {
      dev::CopyWait<kAhead - 1>();
      __syncthreads();  // the copies of all threads are there, and stage `ahead` is read
      const int later = unit + kAhead * S::kUnits;
      if (later < end) Load(from, later, end, ahead);
      dev::CopyCommit();
      Multiply(stage, sums);
      stage = Next(stage);
      ahead = Next(ahead);
    }
    dev::CopyWait<0>();
    __syncthreads();  // shared memory is free
  }
  DEV_FUNCTION uint8_t* Next(uint8_t* stage) const {
    return stage == stages + (S::kStages - 1) * S::kStageBytes ? stages : stage + S::kStageBytes;
  }

  // Neighbouring threads store neighbouring columns of a row.
  DEV_FUNCTION void Store(const LaneSums<S>& sums) const {
    const float* const rows = Spread(sums, reinterpret_cast<float*>(stages));
    const int64_t most = args.rows - FirstRow();
    const int count = static_cast<int>(most < S::kRows ? most : S::kRows);
    const int columns = TileColumns();
    for (int i = Thread(); i < count * columns; i += S::kThreads) {
      const int r = i / columns, c = i % columns;
      const int64_t column = FirstColumn() + c;
      if (column >= Columns()) continue;
      const int64_t place = (FirstRow() + r) * Columns() + column;
      const float* const values = rows + r * S::kSumStride + c;
      if (args.gated) {
        StoreGated(static_cast<T*>(args.y) + place, values[0], values[S::kOutputs / 2], column);
      } else if (args.y_type == DType::kF32) {
        StoreOne(static_cast<float*>(args.y) + place, values[0], column);
      } else {
        StoreOne(static_cast<T*>(args.y) + place, values[0], column);
      }
    }
  }
  // Gate and up are rounded before they meet, as the two launches that this replaces would do.
  DEV_FUNCTION void StoreGated(T* y, float gate, float up, int64_t column) const {
    if (args.bias != nullptr) {
      gate += args.bias[column];
      up += args.bias[Columns() + column];
    }
    gate = dev::ToFloat(dev::FromFloat<T>(gate));
    up = dev::ToFloat(dev::FromFloat<T>(up));
    *y = dev::FromFloat<T>(Silu(gate) * up);
  }
  template <class Y>
  DEV_FUNCTION void StoreOne(Y* y, float value, int64_t column) const {
    if (args.bias != nullptr) value += args.bias[column];
    if (args.accumulate) value += dev::ToFloat(*y);
    *y = dev::FromFloat<Y>(value);
  }
};

// together: one block for each run, which meet. Otherwise one block does all runs, and adds them as
// RunSums does.
template <class S>
DEV_KERNEL void DEV_BOUNDS(S::kThreads, 2)
    MultiplyBlocks(BlockProductArgs args, int runs, bool together) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(uint8_t, memory);
  DEV_SHARED(uint32_t, arrived, 1);
  const BlockTile<S> block = {args, runs, memory};
  LaneSums<S> sums;
  sums.Clear();
  const typename BlockTile<S>::Sources from = block.FindSources();
  const int first = together ? static_cast<int>(blockIdx.z) : 0;
  const int end = together ? first + 1 : runs;
  for (int run = first; run < end; ++run) {
    LaneSums<S> of_run;
    of_run.Clear();
    block.SumRun(from, run, &of_run);
    sums.Add(of_run);
  }
  const RunSums<S> all = {args.partials, args.counters, runs};
  if (together && !all.Join(arrived, &sums)) return;
  block.Store(sums);
}

template <class S>
void LaunchBlocks(const BlockProductArgs& args, cudaStream_t stream) {
  const int runs = ProductRuns(args.outputs, args.inputs);
  const int64_t columns = args.gated ? args.outputs / 2 : args.outputs;
  const unsigned row_tiles = CeilDiv(args.rows, S::kRows);
  const unsigned output_tiles = CeilDiv(columns, args.gated ? S::kOutputs / 2 : S::kOutputs);
  const int64_t tiles = int64_t{row_tiles} * output_tiles;
  const auto bytes = static_cast<size_t>(tiles * runs * S::kSums * S::kThreads * 4) * sizeof(float);
  constexpr int64_t kEnough = 264;  // blocks
  const bool together =
      runs > 1 && tiles < kEnough && bytes <= args.partial_bytes && tiles <= args.counter_count;
  dev::Declare("block product", [args, runs, together, row_tiles, output_tiles] {
    // Each operand as often as blocks load it: all loads of weights but the first find them in the L2
    // cache.
    const int64_t sums = args.rows * args.outputs;
    const int64_t w_bytes =
        BlockPanels(args.outputs) * BlockPanelBytes(S::kFourBits, args.inputs) * row_tiles;
    const int64_t y_bytes = sums * (args.y_type == DType::kF32 ? 4 : 2) / (args.gated ? 2 : 1);
    dev::Cost cost = {w_bytes + 2 * args.inputs * args.rows * output_tiles +
                          y_bytes * (args.accumulate ? 2 : 1) + (together ? 8 * sums * runs : 0),
                      2 * sums * args.inputs};
    cost.cold_bytes = w_bytes / row_tiles;
    // Codes and inputs into shared memory, and out of it: inputs by each of the four warps.
    cost.shared_bytes = 2 * w_bytes + 2 * args.inputs * output_tiles * row_tiles * 5 * S::kRows;
    cost.dependent_loads = together ? 4 : 1;  // joins write, count and read
    // Of a warp for 2,048 weights, 16 outputs wide (machine code of nvcc 13.0, sm_90).
    constexpr int kInstructions[2][4] = {{267, 284, 320, 393}, {274, 300, 335, 409}};
    constexpr int kSize = S::kGroups <= 1 ? 0 : S::kGroups <= 2 ? 1 : S::kGroups <= 4 ? 2 : 3;
    cost.instructions = BlockPanels(args.outputs) * row_tiles * ((args.inputs + 127) / 128) *
                        kInstructions[S::kFourBits][kSize];
    cost.resident = 3;
    cost.block_bytes = (S::kStages - 1) * int64_t{S::kStageBytes};
    return cost;
  });
  const dim3 grid(row_tiles, output_tiles, together ? static_cast<unsigned>(runs) : 1);
  dev::Launch(MultiplyBlocks<S>, grid, dim3(S::kThreads), S::kSharedBytes, stream, args, runs,
              together);
}

template <class T, bool kFourBits>
void LaunchRows(const BlockProductArgs& args, cudaStream_t stream) {
  if (args.rows <= 8) return LaunchBlocks<BlockShape<T, kFourBits, 1>>(args, stream);
  if (args.rows <= 16) return LaunchBlocks<BlockShape<T, kFourBits, 2>>(args, stream);
  if (args.rows <= 32) return LaunchBlocks<BlockShape<T, kFourBits, 4>>(args, stream);
  LaunchBlocks<BlockShape<T, kFourBits, 8>>(args, stream);
}

template <class T>
void LaunchType(const BlockProductArgs& args, cudaStream_t stream) {
  args.w_type == DType::kQ4_0 ? LaunchRows<T, true>(args, stream)
                              : LaunchRows<T, false>(args, stream);
}

}  // namespace

void BlockProduct(const BlockProductArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  args.type == DType::kF16 ? LaunchType<dev::f16>(args, stream)
                           : LaunchType<dev::bf16>(args, stream);
}

}  // namespace coppice::kernels::cuda
