// The products of pairs with the matrices of their experts (experts.h). A block has one expert and a
// tile of its outputs, and goes through the rows of that expert: its weights are read from memory
// once. Sums as in row_product.cu, in one run.
#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/product_tile.h"
#include "kernels/cuda/ops/row_product.h"

namespace coppice::kernels::cuda {
namespace {

// y[pair] = x[source[pair]] w[expert]^T; without a source x[pair].
struct ProductArgs {
  const void* const* w = nullptr;  // [experts] of [outputs, inputs]
  const void* x = nullptr;
  void* y = nullptr;
  const int32_t* source = nullptr;
  int64_t outputs = 0, inputs = 0;
};

// What a block has to do: the pairs [begin, end) of an expert.
struct BlockOfExpert {
  int32_t expert = 0, begin = 0, end = 0;

  DEV_FUNCTION explicit BlockOfExpert(const ExpertLists& lists) {
    const auto i = static_cast<int32_t>(blockIdx.x);
    if (i >= lists.used[0]) return;
    expert = lists.used[1 + i];
    begin = lists.begin[expert];
    end = lists.begin[expert + 1];
  }
};

template <class S, class Y>
DEV_KERNEL void DEV_BOUNDS(S::kThreads, 3) MultiplyPairs(ExpertLists lists, ProductArgs args) {
  using T = typename S::Type;
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(T, memory);
  DEV_SHARED(int32_t, rows, S::kRows);
  const int thread = static_cast<int>(threadIdx.x);
  const BlockOfExpert block(lists);
  const int64_t first_output = int64_t{S::kOutputs} * blockIdx.y;
  const ProductTile<S> tile = {memory};
  const int stages = static_cast<int>((args.inputs + S::kDepth - 1) / S::kDepth);
  for (int32_t first = block.begin; first < block.end; first += S::kRows) {
    const int32_t count = min(S::kRows, block.end - first);
    if (thread < count) {
      const int32_t pair = first + thread;
      rows[thread] = args.source == nullptr ? pair : args.source[pair];
    }
    __syncthreads();  // the rows are there, and the sums of the tile before are read
    const auto* const w = static_cast<const T*>(args.w[block.expert]);
    const auto* const x = static_cast<const T*>(args.x);
    LaneSums<S> sums;
    sums.Clear();
    const auto row_of = [&](int i) -> const T* {
      const int r = i - S::kOutputs;
      if (r < 0)
        return first_output + i < args.outputs ? w + (first_output + i) * args.inputs : nullptr;
      return r < count ? x + int64_t{rows[r]} * args.inputs : nullptr;
    };
    tile.Sum(0, stages, tile.SourceOf(args.inputs, row_of), &sums);
    const float* const spread = Spread(sums, reinterpret_cast<float*>(tile.stages));
    for (int i = thread; i < count * S::kOutputs; i += S::kThreads) {
      const int r = i / S::kOutputs, o = i % S::kOutputs;
      if (first_output + o >= args.outputs) continue;
      static_cast<Y*>(args.y)[(first + r) * args.outputs + first_output + o] =
          dev::FromFloat<Y>(spread[r * S::kSumStride + o]);
    }
  }
}

// ---- The plain kernel: each output summed from its first input to its last.

constexpr int kPlainThreads = 256, kPlainOutputs = 64, kPlainDepth = 32, kPlainRows = 8;
constexpr int kPlainRowStep = kPlainThreads / kPlainOutputs;

// Thread t has output t % kPlainOutputs, of the rows t / kPlainOutputs, + 4, ...
template <class T, class Y>
DEV_KERNEL void DEV_BOUNDS(kPlainThreads, 2)
    MultiplyPlainPairs(ExpertLists lists, ProductArgs args) {
  dev::WaitForPrevious();
  constexpr int kStride = kPlainDepth + 1;
  DEV_SHARED(float, w, kPlainOutputs* kStride);
  DEV_SHARED(float, x, kPlainRows* kStride);
  const int thread = static_cast<int>(threadIdx.x);
  const BlockOfExpert block(lists);
  const int64_t first_output = int64_t{kPlainOutputs} * blockIdx.y;
  for (int32_t first = block.begin; first < block.end; first += kPlainRows) {
    float sums[kPlainRows / kPlainRowStep] = {};
    for (int64_t c = 0; c < args.inputs; c += kPlainDepth) {
      for (int i = thread; i < (kPlainOutputs + kPlainRows) * kPlainDepth; i += kPlainThreads) {
        const int at = i / kPlainDepth, r = at - kPlainOutputs;
        const int64_t input = c + i % kPlainDepth;
        float value = 0.0f;
        if (r < 0) {
          if (input < args.inputs && first_output + at < args.outputs) {
            value = dev::ToFloat(static_cast<const T*>(
                args.w[block.expert])[(first_output + at) * args.inputs + input]);
          }
          w[at * kStride + i % kPlainDepth] = value;
        } else {
          if (input < args.inputs && first + r < block.end) {
            const int64_t row = args.source == nullptr ? first + r : args.source[first + r];
            value = dev::ToFloat(static_cast<const T*>(args.x)[row * args.inputs + input]);
          }
          x[r * kStride + i % kPlainDepth] = value;
        }
      }
      __syncthreads();
      const int64_t left = args.inputs - c;
      const int depth = static_cast<int>(left < kPlainDepth ? left : kPlainDepth);
      for (int k = 0; k < depth; ++k) {
        const float weight = w[thread % kPlainOutputs * kStride + k];
        DEV_UNROLL
        for (int i = 0; i < kPlainRows / kPlainRowStep; ++i) {
          sums[i] =
              fmaf(x[(thread / kPlainOutputs + i * kPlainRowStep) * kStride + k], weight, sums[i]);
        }
      }
      __syncthreads();
    }
    const int64_t output = first_output + thread % kPlainOutputs;
    DEV_UNROLL
    for (int i = 0; i < kPlainRows / kPlainRowStep; ++i) {
      const int32_t pair = first + thread / kPlainOutputs + i * kPlainRowStep;
      if (output >= args.outputs || pair >= block.end) continue;
      static_cast<Y*>(args.y)[pair * args.outputs + output] = dev::FromFloat<Y>(sums[i]);
    }
  }
}

// ---- Launches

// Weights once for each expert that may have rows, inputs for each tile of outputs, outputs once.
dev::Cost CostOf(const ExpertsArgs& experts, const ProductArgs& args, int64_t y_bytes) {
  const int64_t element = experts.dtype == DType::kF32 ? 4 : 2;
  const int64_t products = args.outputs * args.inputs;
  return {element * (experts.most_used() * products +
                     experts.pairs() * args.inputs * CeilDiv(args.outputs, 64)) +
              y_bytes * experts.pairs() * args.outputs,
          2 * experts.pairs() * products};
}

template <class Y>
void Declare(const ExpertsArgs& experts, const ProductArgs& args) {
  dev::Declare("product of experts",
               [experts, args] { return CostOf(experts, args, int64_t{sizeof(Y)}); });
}

template <class S, class Y>
void LaunchTiles(const ExpertsArgs& experts, const ProductArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(experts.most_used()), CeilDiv(args.outputs, S::kOutputs));
  Declare<Y>(experts, args);
  dev::Launch(MultiplyPairs<S, Y>, grid, dim3(S::kThreads), S::kSharedBytes, stream, experts.lists,
              args);
}

// Tiles for twice the rows that experts have on average, unless they cannot have as many.
template <class T, class Y>
void LaunchTensorPairs(const ExpertsArgs& experts, const ProductArgs& args, cudaStream_t stream) {
  const int64_t rows =
      std::min<int64_t>(experts.rows, 2 * CeilDiv(experts.pairs(), experts.experts));
  if (rows <= 8) return LaunchTiles<TileShape<T, 4, 1, 1, 1, 64, 6>, Y>(experts, args, stream);
  if (rows <= 16) return LaunchTiles<TileShape<T, 4, 1, 1, 2, 64, 6>, Y>(experts, args, stream);
  if (rows <= 32) return LaunchTiles<TileShape<T, 4, 1, 1, 4, 64, 5>, Y>(experts, args, stream);
  LaunchTiles<TileShape<T, 4, 1, 1, 8, 64, 4>, Y>(experts, args, stream);
}

// kWide: y is f32, else of the type of the matrices.
template <bool kWide>
void Multiply(const ExpertsArgs& experts, const ProductArgs& args, cudaStream_t stream) {
  WithType(experts.dtype, [&](auto element) {
    using T = decltype(element);
    using Y = std::conditional_t<kWide, float, T>;
    if constexpr (!std::is_same_v<T, float>) {
      if (HasTensorRows(experts.dtype, args.inputs))
        return LaunchTensorPairs<T, Y>(experts, args, stream);
    }
    const dim3 grid(static_cast<unsigned>(experts.most_used()),
                    CeilDiv(args.outputs, kPlainOutputs));
    Declare<Y>(experts, args);
    dev::Launch(MultiplyPlainPairs<T, Y>, grid, dim3(kPlainThreads), 0, stream, experts.lists,
                args);
  });
}

}  // namespace

void EnterExperts(const ExpertsArgs& args, cudaStream_t stream) {
  Multiply<false>(
      args,
      {args.gate_up, args.x, args.gate_up_out, args.lists.source, 2 * args.inner, args.columns},
      stream);
}

void LeaveExperts(const ExpertsArgs& args, cudaStream_t stream) {
  Multiply<true>(args, {args.down, args.activated, args.outputs, nullptr, args.columns, args.inner},
                 stream);
}

}  // namespace coppice::kernels::cuda
