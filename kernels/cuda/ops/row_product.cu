// y = x w^T with sums of a fixed order (row_product.h), by tensor cores in the tiles of product_tile.h.
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/product_tile.h"
#include "kernels/cuda/ops/row_product.h"

namespace coppice::kernels::cuda {
namespace {

// Block (row tile, output tile, run): blocks side by side read the same weights.
template <class S>
struct ProductBlock {
  using T = typename S::Type;
  const RowProductArgs& args;
  const int runs;
  const ProductTile<S> tile;

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int64_t FirstOutput() const { return int64_t{S::kOutputs} * blockIdx.y; }
  DEV_FUNCTION int64_t FirstRow() const { return int64_t{S::kRows} * blockIdx.x; }

  using Source = typename ProductTile<S>::Source;

  DEV_FUNCTION Source SourceOfTile() const {
    return tile.SourceOf(args.inputs, [this](int i) -> const T* {
      const bool weight = i < S::kOutputs;
      const int64_t row = weight ? FirstOutput() + i : FirstRow() + i - S::kOutputs;
      if (row >= (weight ? args.outputs : args.rows)) return nullptr;
      return static_cast<const T*>(weight ? args.w : args.x) + row * args.inputs;
    });
  }

  // Sums one run. The copies of later stages go on behind the arithmetic.
  DEV_FUNCTION void SumRun(int run, const Source& source, LaneSums<S>* sums) const {
    constexpr int kStagesOfUnit = kRunUnit / S::kDepth;
    const int units = static_cast<int>((args.inputs + kRunUnit - 1) / kRunUnit);
    const int begin = static_cast<int>(int64_t{units} * run / runs) * kStagesOfUnit;
    const int end = static_cast<int>(int64_t{units} * (run + 1) / runs) * kStagesOfUnit;
    tile.Sum(begin, end, source, sums);
  }

  // All runs of the tile, one after the other; added as RunSums adds them.
  DEV_FUNCTION void SumAll(LaneSums<S>* sums) const {
    sums->Clear();
    const Source source = SourceOfTile();
    for (int run = 0; run < runs; ++run) {
      LaneSums<S> of_run;
      of_run.Clear();
      SumRun(run, source, &of_run);
      sums->Add(of_run);
    }
  }

  // Neighbouring threads store neighbouring outputs of a row.
  DEV_FUNCTION void Store(const LaneSums<S>& sums) const {
    const float* const rows = Spread(sums, reinterpret_cast<float*>(tile.stages));
    const int64_t most = args.rows - FirstRow();
    const int count = static_cast<int>(most < S::kRows ? most : S::kRows);
    for (int i = Thread(); i < count * S::kOutputs; i += S::kThreads) {
      const int r = i / S::kOutputs, o = i % S::kOutputs;
      if (FirstOutput() + o >= args.outputs) continue;
      const int64_t place = (FirstRow() + r) * args.outputs + FirstOutput() + o;
      const float value = rows[r * S::kSumStride + o];
      if (args.y_type == DType::kF32) {
        StoreOne(static_cast<float*>(args.y) + place, value, FirstOutput() + o);
      } else {
        StoreOne(static_cast<T*>(args.y) + place, value, FirstOutput() + o);
      }
    }
  }
  template <class Y>
  DEV_FUNCTION void StoreOne(Y* y, float value, int64_t output) const {
    if (args.bias != nullptr) value += args.bias[output];
    if (args.accumulate) value += dev::ToFloat(*y);
    *y = dev::FromFloat<Y>(value);
  }
};

// kTogether: one block for each run, which meet. Otherwise one block does all runs.
template <class S, bool kTogether>
DEV_KERNEL void DEV_BOUNDS(S::kThreads, S::kThreads > 128 ? 1 : 2)
    MultiplyRows(RowProductArgs args, int runs) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(typename S::Type, memory);
  DEV_SHARED(uint32_t, arrived, 1);
  const ProductBlock<S> block = {args, runs, {memory}};
  LaneSums<S> sums;
  if constexpr (kTogether) {
    sums.Clear();
    block.SumRun(static_cast<int>(blockIdx.z), block.SourceOfTile(), &sums);
    const RunSums<S> all = {args.partials, args.counters, runs};
    if (!all.Join(arrived, &sums)) return;
  } else {
    block.SumAll(&sums);
  }
  block.Store(sums);
}

int64_t Tiles(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

// Each operand as often as blocks load it: most of these loads find it in the L2 cache.
dev::Cost CostOf(const RowProductArgs& args, int64_t tile_outputs, int64_t tile_rows, int runs) {
  const int64_t element = args.type == DType::kF32 ? 4 : 2;
  const int64_t sums = args.rows * args.outputs;
  const int64_t loads = args.outputs * Tiles(args.rows, tile_rows) +
                        int64_t{args.rows} * Tiles(args.outputs, tile_outputs);
  const int64_t y_bytes = sums * (args.y_type == DType::kF32 ? 4 : element);
  dev::Cost cost = {element * args.inputs * loads + y_bytes * (args.accumulate ? 2 : 1) +
                        (runs > 1 ? 8 * sums * runs : 0),
                    2 * sums * args.inputs};
  cost.cold_bytes = element * args.inputs * args.outputs;
  cost.dependent_loads = runs > 1 ? 4 : 1;
  return cost;
}

template <class S>
void LaunchTiles(const RowProductArgs& args, cudaStream_t stream) {
  const int runs = ProductRuns(args.outputs, args.inputs);
  const int64_t row_tiles = Tiles(args.rows, S::kRows);
  const int64_t tiles = row_tiles * Tiles(args.outputs, S::kOutputs);
  const auto bytes = static_cast<size_t>(tiles * runs * S::kSums * S::kThreads * 4) * sizeof(float);
  constexpr int64_t kEnough = 264;  // blocks
  const bool together =
      runs > 1 && tiles < kEnough && bytes <= args.partial_bytes && tiles <= args.counter_count;
  dev::Declare("row product", [args, runs, together] {
    dev::Cost cost = CostOf(args, S::kOutputs, S::kRows, together ? runs : 1);
    cost.resident = S::kThreads > 128 ? 1 : 2;
    cost.block_bytes = (S::kStages - 1) * int64_t{S::kOutputs + S::kRows} * S::kDepth * 2;
    return cost;
  });
  const dim3 grid(static_cast<unsigned>(row_tiles), CeilDiv(args.outputs, S::kOutputs),
                  together ? static_cast<unsigned>(runs) : 1);
  dev::Launch(together ? MultiplyRows<S, true> : MultiplyRows<S, false>, grid, dim3(S::kThreads),
              S::kSharedBytes, stream, args, runs);
}

template <class T>
void LaunchTensorRows(const RowProductArgs& args, cudaStream_t stream) {
  if (args.rows <= 8) return LaunchTiles<TileShape<T, 4, 1, 1, 1, 64, 6>>(args, stream);
  if (args.rows <= 16) return LaunchTiles<TileShape<T, 4, 1, 1, 2, 64, 6>>(args, stream);
  if (args.rows <= 32) return LaunchTiles<TileShape<T, 4, 1, 1, 4, 64, 5>>(args, stream);
  if (args.rows <= 64) return LaunchTiles<TileShape<T, 4, 1, 1, 8, 64, 4>>(args, stream);
  LaunchTiles<TileShape<T, 4, 2, 2, 8, 32, 4>>(args, stream);
}

// ---- The plain kernel: one run, each output summed from its first input to its last.

constexpr int kPlainThreads = 256, kPlainOutputs = 64, kPlainDepth = 32;
constexpr int kPlainRowStep = kPlainThreads / kPlainOutputs;

// Thread t has output t % kPlainOutputs, of the rows t / kPlainOutputs, + 4, ...
template <class T, class Y, int kRows>
DEV_KERNEL void DEV_BOUNDS(kPlainThreads, 2) MultiplyPlainRows(RowProductArgs args) {
  dev::WaitForPrevious();
  constexpr int kStride = kPlainDepth + 1;
  DEV_SHARED(float, w, kPlainOutputs* kStride);
  DEV_SHARED(float, x, kRows* kStride);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_output = int64_t{kPlainOutputs} * blockIdx.y;
  const int64_t first_row = int64_t{kRows} * blockIdx.x;
  float sums[kRows / kPlainRowStep] = {};
  for (int64_t first = 0; first < args.inputs; first += kPlainDepth) {
    for (int i = thread; i < (kPlainOutputs + kRows) * kPlainDepth; i += kPlainThreads) {
      const int at = i / kPlainDepth, input = i % kPlainDepth;
      const bool weight = at < kPlainOutputs;
      const int64_t row = weight ? first_output + at : first_row + at - kPlainOutputs;
      const bool valid = first + input < args.inputs && row < (weight ? args.outputs : args.rows);
      const auto* from = static_cast<const T*>(weight ? args.w : args.x);
      const float value = valid ? dev::ToFloat(from[row * args.inputs + first + input]) : 0.0f;
      (weight ? w[at * kStride + input] : x[(at - kPlainOutputs) * kStride + input]) = value;
    }
    __syncthreads();
    const int64_t left = args.inputs - first;
    const int depth = static_cast<int>(left < kPlainDepth ? left : kPlainDepth);
    for (int k = 0; k < depth; ++k) {
      const float weight = w[thread % kPlainOutputs * kStride + k];
      DEV_UNROLL
      for (int i = 0; i < kRows / kPlainRowStep; ++i) {
        sums[i] =
            fmaf(x[(thread / kPlainOutputs + i * kPlainRowStep) * kStride + k], weight, sums[i]);
      }
    }
    __syncthreads();
  }
  const int64_t output = first_output + thread % kPlainOutputs;
  if (output >= args.outputs) return;
  DEV_UNROLL
  for (int i = 0; i < kRows / kPlainRowStep; ++i) {
    const int64_t row = first_row + thread / kPlainOutputs + i * kPlainRowStep;
    if (row >= args.rows) continue;
    Y* const y = static_cast<Y*>(args.y) + row * args.outputs + output;
    float value = sums[i];
    if (args.bias != nullptr) value += args.bias[output];
    if (args.accumulate) value += dev::ToFloat(*y);
    *y = dev::FromFloat<Y>(value);
  }
}

template <class T, int kRows>
void LaunchPlainRows(const RowProductArgs& args, cudaStream_t stream) {
  const dim3 grid(CeilDiv(args.rows, kRows), CeilDiv(args.outputs, kPlainOutputs));
  dev::Declare("row product", [args] { return CostOf(args, kPlainOutputs, kRows, 1); });
  if (args.y_type == DType::kF32) {
    dev::Launch(MultiplyPlainRows<T, float, kRows>, grid, dim3(kPlainThreads), 0, stream, args);
  } else {
    dev::Launch(MultiplyPlainRows<T, T, kRows>, grid, dim3(kPlainThreads), 0, stream, args);
  }
}

}  // namespace

void RowProduct(const RowProductArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  if (HasTensorRows(args.type, args.inputs)) {
    if (args.type == DType::kBF16) return LaunchTensorRows<dev::bf16>(args, stream);
    return LaunchTensorRows<dev::f16>(args, stream);
  }
  WithType(args.type, [&](auto element) {
    using T = decltype(element);
    args.rows <= 8 ? LaunchPlainRows<T, 8>(args, stream) : LaunchPlainRows<T, 64>(args, stream);
  });
}

}  // namespace coppice::kernels::cuda
