#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cmath>

#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "kernels/block_format.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kernel_target.h"
#include "kernels/cpu/matmul_bf16.h"
#include "kernels/cpu/matmul_blocks.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {

// All rows fit one tile: the weights are read once, in `Panels` streams, each contiguous in memory.
template <class Weights, int kRows>
void OneRowTile(const MatMulArgs& args, int64_t begin, int64_t end) {
  constexpr int kStreams = PanelsFor(kRows);
  const int64_t per_stream = (end - begin) / kStreams;
  for (int64_t i = 0; i < per_stream; ++i) {
    Tile<Weights, kRows, kStreams>(args, 0, begin + i, per_stream);
  }
  for (int64_t p = begin + per_stream * kStreams; p < end; ++p)
    Tile<Weights, kRows, 1>(args, 0, p, 1);
}

// More rows: takes groups of panels that stay in the second-level cache while all rows use them.
template <class Weights, int kRows, int kPanels>
HWY_INLINE void TilesOfGroup(const MatMulArgs& args, int64_t row, int64_t begin, int64_t end,
                             Ahead ahead) {
  int64_t p = begin;
  for (; p + kPanels <= end; p += kPanels) Tile<Weights, kRows, kPanels>(args, row, p, 1, ahead);
  for (; p < end; ++p) Tile<Weights, kRows, 1>(args, row, p, 1, ahead);
}

template <class Weights>
void ManyRowTiles(const MatMulArgs& args, int64_t begin, int64_t end) {
  constexpr int kPanels = PanelsFor(kMaxTileRows);
  const int64_t tiles = (args.rows + kMaxTileRows - 1) / kMaxTileRows;
  const int64_t in_cache = std::max<int64_t>(1, kGroupBytes / args.w->panel_bytes());
  const int64_t group =
      tiles <= 4 ? kPanels : std::max<int64_t>(kPanels, in_cache / kPanels * kPanels);
  for (int64_t p = begin; p < end; p += group) {
    const int64_t stop = std::min(end, p + group);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = args.rows * tile / tiles;  // tiles differ by at most one row
      Ahead ahead;
      if (group == 1) {  // few tiles share the loading of the next panel
        const auto bytes = static_cast<int64_t>(args.w->panel_bytes());
        ahead.next = args.w->panel(p) + bytes + bytes * tile / tiles;
        ahead.step = Weights::kStepBytes / tiles;
      }
      switch (args.rows * (tile + 1) / tiles - row) {
        case 3:
          TilesOfGroup<Weights, 3, kPanels>(args, row, p, stop, ahead);
          break;
        case 4:
          TilesOfGroup<Weights, 4, kPanels>(args, row, p, stop, ahead);
          break;
        case 5:
          TilesOfGroup<Weights, 5, kPanels>(args, row, p, stop, ahead);
          break;
        default:
          TilesOfGroup<Weights, 6, kPanels>(args, row, p, stop, ahead);
      }
    }
  }
}

template <class Weights>
void MatMulPanels(const MatMulArgs& args, int64_t begin, int64_t end) {
  switch (args.rows) {
    case 1:
      return OneRowTile<Weights, 1>(args, begin, end);
    case 2:
      return OneRowTile<Weights, 2>(args, begin, end);
    case 3:
      return OneRowTile<Weights, 3>(args, begin, end);
    case 4:
      return OneRowTile<Weights, 4>(args, begin, end);
    case 5:
      return OneRowTile<Weights, 5>(args, begin, end);
    case 6:
      return OneRowTile<Weights, 6>(args, begin, end);
    default:
      return ManyRowTiles<Weights>(args, begin, end);
  }
}

void MatMulRange(const MatMulArgs& args, int64_t panel_begin, int64_t panel_end) {
  if (args.w->dtype == DType::kF32) {
    MatMulPanels<F32Weights>(args, panel_begin, panel_end);
  } else {
    MatMulPanels<Bf16Weights>(args, panel_begin, panel_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(MatMulRange);

namespace {

// Which instructions multiply.
enum class Way { kFloat, kBf16Dot, kBlocks };

Way WayOf(const CpuMatrix& w, KernelTarget target) {
  if (IsBlockFormat(w.dtype)) return Way::kBlocks;
  if (w.dtype == DType::kBF16 && target == KernelTarget::kAvx512Bf16) return Way::kBf16Dot;
  return Way::kFloat;
}

// The outputs of a product that have one type of weights.
struct Part {
  MatMulArgs args;
  Way way = Way::kFloat;
  size_t form = 0;  // its inputs among PreparedInputs::int8
};
using Parts = absl::InlinedVector<Part, 1>;

Parts PartsOf(MatMulArgs args, KernelTarget target) {
  args.y_stride = args.w->rows;
  if (args.w->parts.empty()) return {Part{args, WayOf(*args.w, target)}};
  Parts parts;
  std::vector<Int8Form> forms;
  for (const auto& w : args.w->parts) {
    args.w = w.get();
    Part part{args, WayOf(*w, target)};
    if (part.way == Way::kBlocks) {
      const Int8Form form = Int8FormFor(w->dtype);
      part.form = std::find(forms.begin(), forms.end(), form) - forms.begin();
      if (part.form == forms.size()) forms.push_back(form);
    }
    parts.push_back(part);
    args.y += w->rows;
    if (args.bias != nullptr) args.bias += w->rows;
  }
  return parts;
}

// Rough time of the op on one thread; decides into how many parts it is split.
double EstimateMicroseconds(const MatMulArgs& args, Way way) {
  const double stream = static_cast<double>(args.w->bytes) / 20e3;  // 20 GB/s
  const double gflops = way == Way::kFloat ? 60 : way == Way::kBf16Dot ? 220 : 120;
  const double compute = 2e-3 * args.rows * args.w->rows * args.w->columns / gflops;
  return std::max(stream, compute);
}

constexpr double kWorthSharingUs = 8.0;
constexpr double kChunkUs = 20.0;
constexpr int64_t kMinPanelsPerChunk = 4;
constexpr int64_t kMostChunksEach = 8;
constexpr int64_t kMinInputsPerChunk = 8 << 10;
constexpr int64_t kInputsPerPart = 64;
constexpr int64_t kFewInputs = 32 << 10;   // inputs; as many are rounded to bf16 in about 2 us
constexpr int64_t kFewIntegers = 8 << 10;  // inputs; as many are rounded to int8 in about 2 us

// Into how many chunks the work is split among the threads, of at most `most`.
int64_t ChunksOf(const Parts& parts, int64_t most, int threads) {
  double micros = 0;
  for (const Part& part : parts) micros += EstimateMicroseconds(part.args, part.way);
  if (threads == 1 || micros < kWorthSharingUs) return 1;
  // Each thread gets the same number of chunks: with three chunks, one of two threads would do two
  // thirds.
  const auto each = static_cast<int64_t>(std::ceil(micros / kChunkUs / threads));
  return std::min(threads * std::clamp<int64_t>(each, 1, kMostChunksEach),
                  std::max<int64_t>(1, most));
}

// Turns rows of x into bf16, or into the int8 form of a part.
void PrepareBf16(const MatMulArgs& args, const float* x, ThreadTeam* team, PreparedInputs* inputs) {
  const int64_t columns = args.w->columns;
  inputs->pairs.resize(args.rows * PairsOf(columns));
  const int64_t blocks = (columns + kInputsPerPart - 1) / kInputsPerPart;
  const int64_t chunks = std::clamp<int64_t>(args.rows * columns / kMinInputsPerChunk, 1, blocks);
  team->Run(static_cast<int>(chunks), [&](int chunk) {
    RoundToPairs(x, args.rows, columns, blocks * chunk / chunks * kInputsPerPart,
                 blocks * (chunk + 1) / chunks * kInputsPerPart, inputs->pairs.data());
  });
}
void PrepareInt8(const MatMulArgs& args, const float* x, ThreadTeam* team, Int8Rows* int8) {
  const int64_t columns = args.w->columns;
  int8->Resize(args.rows, columns, args.w->dtype);
  const int64_t chunks =
      std::clamp<int64_t>(args.rows * columns / kMinInputsPerChunk, 1, args.rows);
  team->Run(static_cast<int>(chunks), [&](int chunk) {
    const int64_t begin = args.rows * chunk / chunks, end = args.rows * (chunk + 1) / chunks;
    for (int64_t row = begin; row < end; ++row) int8->Set(row, x + row * columns, columns);
  });
}

// Turns rows of x into what the kernels of the parts read.
void PrepareRows(const Parts& parts, const float* x, ThreadTeam* team, PreparedInputs* inputs) {
  bool has_pairs = false;
  size_t forms = 0;
  for (const Part& part : parts) {
    if (part.way == Way::kBf16Dot && !has_pairs) {
      PrepareBf16(part.args, x, team, inputs);
      has_pairs = true;
    }
    if (part.way == Way::kBlocks && part.form == forms) {
      if (inputs->int8.size() == forms) inputs->int8.emplace_back();
      PrepareInt8(part.args, x, team, &inputs->int8[forms++]);
    }
  }
}

// Prepares a few rows on this thread, normed if args says so.
void PrepareOwnRows(const MatMulArgs& args, const Parts& parts, PreparedInputs* inputs) {
  static ThreadTeam alone(1);  // runs everything on the thread that asks
  const float* x = args.x;
  if (args.norm.gain != nullptr) {
    inputs->normed.resize(args.rows * args.w->columns);
    NormRows(args.norm, x, args.rows, args.w->columns, inputs->normed.data());
    x = inputs->normed.data();
  }
  PrepareRows(parts, x, &alone, inputs);
}

void MultiplyPanels(const Part& part, const PreparedInputs& inputs, KernelTarget target,
                    int64_t begin, int64_t end) {
  switch (part.way) {
    case Way::kFloat: {
      MatMulArgs normed = part.args;
      if (normed.norm.gain != nullptr) normed.x = inputs.normed.data();
      return HWY_DYNAMIC_DISPATCH(MatMulRange)(normed, begin, end);
    }
    case Way::kBf16Dot:
      return MatMulBf16Range(part.args, inputs.pairs.data(), begin, end);
    case Way::kBlocks:
      return MatMulBlocksRange(part.args, inputs.int8[part.form], target, begin, end);
  }
}

}  // namespace

bool PreparesOwnRows(int64_t rows, int64_t columns) { return rows * columns <= kFewInputs; }

void MatMul(const MatMulArgs& args, ThreadTeam* team, MatMulScratch* scratch) {
  if (args.rows <= 0) return;
  const KernelTarget target = CurrentKernelTarget();
  const Parts parts = PartsOf(args, target);
  COPPICE_CHECK(args.norm.gain == nullptr || PreparesOwnRows(args.rows, args.w->columns));
  int64_t few = kFewInputs, panels = 0;
  for (const Part& part : parts) {
    if (part.way == Way::kBlocks) few = kFewIntegers;
    panels += part.args.w->panels();
  }
  const bool own_rows = args.norm.gain != nullptr || args.rows * args.w->columns <= few;
  if (!own_rows) PrepareRows(parts, args.x, team, &scratch->shared);
  const uint64_t call = ++scratch->calls;
  scratch->own.resize(team->count());
  const int64_t chunks = ChunksOf(parts, panels / kMinPanelsPerChunk, team->count());
  team->Run(static_cast<int>(chunks), [&](int chunk) {
    int64_t begin = panels * chunk / chunks, end = panels * (chunk + 1) / chunks;
    const PreparedInputs* inputs = &scratch->shared;
    if (own_rows) {
      MatMulScratch::OfThread& own = scratch->own[ThreadTeam::ThisThread()];
      if (own.call != call) PrepareOwnRows(args, parts, &own.inputs);
      own.call = call;
      inputs = &own.inputs;
    }
    for (const Part& part : parts) {
      const int64_t of_part = part.args.w->panels();
      const int64_t first = std::max<int64_t>(begin, 0), last = std::min(end, of_part);
      if (first < last) MultiplyPanels(part, *inputs, target, first, last);
      begin -= of_part;
      end -= of_part;
    }
  });
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
