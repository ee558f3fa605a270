// Norms of the residual stream and of what is added to it, of two rows side by side, and biases.
#include <algorithm>

#include "kernels/cuda/ops/norm_row.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = kNormThreads;

// What is added to a row, from memory.
template <int N>
struct RowAddend {
  const float* row;

  DEV_FUNCTION dev::Pack<float, N> At(int64_t c) const { return dev::LoadPack<N>(row + c); }
  DEV_FUNCTION void Group(int first, int64_t columns,
                          dev::Pack<float, N> (&added)[HeldRow<N>::kGroup]) const {
    HeldRow<N>::EachOf(first, columns, [&](int j, int64_t c) { added[j - first] = At(c); });
  }
};

// One block a row. A plain AddNorm.
template <class T, int N>
DEV_KERNEL void AddNormRows(AddNormArgs args) {
  dev::WaitForPrevious();
  const int64_t row = blockIdx.x;
  NormRow<T, N>(args, row, args.addend != nullptr,
                RowAddend<N>{args.addend == nullptr ? nullptr : args.addend + row * args.columns});
}

// What a norm does to the values of a row before gain and bias: (value - mean) * scale.
struct Spread {
  float mean = 0.0f, scale = 1.0f;
};

// The sum of f(value) over a row, by all threads of the block. A thread reads only what it may have
// written itself.
template <int N, class F>
DEV_FUNCTION float RowSum(const HeldRow<N>& held, const float* row, int64_t columns, F f) {
  float sum = 0.0f;
  const auto add = [&](const dev::Pack<float, N>& values) {
    for (int i = 0; i < N; ++i) sum += f(values.value[i]);
  };
  HeldRow<N>::Each(columns, [&](int j, int64_t) { add(held.pack[j]); });
  HeldRow<N>::EachBeyond(columns, [&](int64_t c) { add(dev::LoadPack<N>(row + c)); });
  __syncthreads();  // every thread has read the sum before
  return NormBlockSum(sum);
}

// Of a row, of which `held` has a part. The variance is that of the differences from the mean: no
// digits cancel.
template <int N>
DEV_FUNCTION Spread SpreadOf(const NormArgs& norm, const HeldRow<N>& held, const float* row,
                             int64_t columns) {
  Spread spread;
  if (norm.gain == nullptr) return spread;
  const auto count = static_cast<float>(columns);
  if (norm.kind == NormKind::kLayer) {
    spread.mean = RowSum<N>(held, row, columns, [](float value) { return value; }) / count;
  }
  const float squares = RowSum<N>(held, row, columns, [mean = spread.mean](float value) {
    return (value - mean) * (value - mean);
  });
  spread.scale = 1.0f / sqrtf(squares / count + norm.epsilon);
  return spread;
}

// The normed values from column c on. The product with the gain is rounded before the bias is added:
// said here, as the compiler's choice would depend on the code around it.
template <int N>
DEV_FUNCTION dev::Pack<float, N> Normed(const NormArgs& norm, const Spread& spread, int64_t c,
                                        dev::Pack<float, N> values) {
  if (norm.gain == nullptr) return values;
  const dev::Pack<float, N> gain = dev::LoadPack<N>(norm.gain + c);
  for (int i = 0; i < N; ++i) {
    values.value[i] = dev::MulRn((values.value[i] - spread.mean) * spread.scale, gain.value[i]);
  }
  if (norm.bias == nullptr) return values;
  const dev::Pack<float, N> bias = dev::LoadPack<N>(norm.bias + c);
  for (int i = 0; i < N; ++i) values.value[i] = dev::AddRn(values.value[i], bias.value[i]);
  return values;
}

// out = the norm of a row, of which `in` has a part.
template <class T, int N>
DEV_FUNCTION void WriteNormed(const NormArgs& norm, HeldRow<N>& in, const float* row,
                              int64_t columns, T* out) {
  using Held = HeldRow<N>;
  const Spread spread = SpreadOf<N>(norm, in, row, columns);
  const auto write = [&](const dev::Pack<float, N>& normed, int64_t c) {
    dev::Pack<T, N> rounded;
    for (int i = 0; i < N; ++i) rounded.value[i] = dev::FromFloat<T>(normed.value[i]);
    dev::StorePack(out + c, rounded);
  };
  // All loads of gain and bias are under way before the first store.
  Held::Each(columns,
             [&](int j, int64_t c) { in.pack[j] = Normed<N>(norm, spread, c, in.pack[j]); });
  Held::Each(columns, [&](int j, int64_t c) { write(in.pack[j], c); });
  Held::EachBeyond(
      columns, [&](int64_t c) { write(Normed<N>(norm, spread, c, dev::LoadPack<N>(row + c)), c); });
}

// One block a row. Any AddNorm.
template <class T, int N>
DEV_KERNEL void AddAnyNormRows(AddNormArgs args) {
  dev::WaitForPrevious();
  using Held = HeldRow<N>;
  const int64_t begin = blockIdx.x * args.columns;
  float* x = args.x + begin;
  Held in;
  in.Load(x, args.columns);
  if (args.addend != nullptr) {
    const float* addend = args.addend + begin;
    Held added;
    added.Load(addend, args.columns);
    const Spread spread = SpreadOf<N>(args.addend_norm, added, addend, args.columns);
    const auto sum = [&](dev::Pack<float, N> values, const dev::Pack<float, N>& other, int64_t c) {
      const dev::Pack<float, N> normed = Normed<N>(args.addend_norm, spread, c, other);
      for (int i = 0; i < N; ++i) {
        values.value[i] = fmaf(args.scale, normed.value[i], values.value[i]);
      }
      return values;
    };
    Held::Each(args.columns,
               [&](int j, int64_t c) { in.pack[j] = sum(in.pack[j], added.pack[j], c); });
    Held::Each(args.columns, [&](int j, int64_t c) { dev::StorePack(x + c, in.pack[j]); });
    Held::EachBeyond(args.columns, [&](int64_t c) {
      dev::StorePack(x + c, sum(dev::LoadPack<N>(x + c), dev::LoadPack<N>(addend + c), c));
    });
  }
  WriteNormed<T, N>(args.norm, in, x, args.columns, static_cast<T*>(args.out) + begin);
}

// Block (row, part).
template <class T, int N>
DEV_KERNEL void NormPairRows(NormPairArgs args) {
  dev::WaitForPrevious();
  const bool second = blockIdx.y != 0;
  // An index would move the parameter to local memory.
  const NormPairArgs::Part part = second ? args.second : args.first;
  const int64_t width = args.first.columns + args.second.columns;
  const float* const row = part.x + blockIdx.x * part.columns;
  T* const out = static_cast<T*>(args.out) + blockIdx.x * width + (second ? args.first.columns : 0);
  HeldRow<N> in;
  in.Load(row, part.columns);
  WriteNormed<T, N>(part.norm, in, row, part.columns, out);
}

// Of one element: f32 values that a norm reads besides itself (its gain and its bias), times that it
// reads itself again where it is not held, operations.
struct NormCost {
  explicit NormCost(const NormArgs& norm) {
    if (norm.empty()) return;
    const bool layer = norm.kind == NormKind::kLayer;
    reads = 1 + (norm.bias != nullptr);
    again = 1 + layer;
    flops = 4 + 3 * layer + (norm.bias != nullptr);
  }
  int64_t reads = 0, again = 0, flops = 0;
};

// The residual is read, and with an addend, which is read, written.
dev::Cost CostOf(const AddNormArgs& args, int64_t out_bytes) {
  const NormCost norm(args.norm), of_addend(args.addend_norm);
  int64_t floats = 1 + norm.reads, again = norm.again, flops = norm.flops;
  if (args.addend != nullptr) {
    floats += 2 + of_addend.reads;
    again += of_addend.again;
    flops += (args.scale == 1 ? 1 : 2) + of_addend.flops;
  }
  const int64_t held = args.columns % 4 == 0 ? HeldRow<4>::kColumns : HeldRow<1>::kColumns;
  const int64_t elements = args.rows * args.columns;
  const int64_t not_held = args.rows * std::max<int64_t>(0, args.columns - held);
  dev::Cost cost = {elements * (floats * int64_t{sizeof(float)} + out_bytes) +
                        not_held * again * int64_t{sizeof(float)},
                    elements * flops};
  // All loads of the columns that are held are under way together.
  cost.dependent_loads = CeilDiv(args.columns, held);
  cost.serial_instructions = 250;
  cost.resident = 2;
  return cost;
}

// Block (row, piece of kThreads * N columns).
template <class T, int N>
DEV_KERNEL void AddBiasRows(T* y, const float* bias, int64_t columns) {
  dev::WaitForPrevious();
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (c >= columns) return;
  T* place = y + blockIdx.x * columns + c;
  dev::Pack<T, N> sum = dev::LoadPack<N>(place);
  const dev::Pack<float, N> added = dev::LoadPack<N>(bias + c);
  for (int i = 0; i < N; ++i) {
    sum.value[i] = dev::FromFloat<T>(dev::ToFloat(sum.value[i]) + added.value[i]);
  }
  dev::StorePack(place, sum);
}

}  // namespace

void AddNorm(const AddNormArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(args.rows));
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("norm", [args] { return CostOf(args, sizeof(T)); });
    const bool whole = args.columns % 4 == 0;
    const auto kernel = args.plain() ? (whole ? AddNormRows<T, 4> : AddNormRows<T, 1>)
                                     : (whole ? AddAnyNormRows<T, 4> : AddAnyNormRows<T, 1>);
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, args);
  });
}

void NormPair(const NormPairArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(args.rows), 2);
  const int64_t first = args.first.columns, second = args.second.columns;
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("norm of a pair", [args] {
      dev::Cost cost;
      for (const NormPairArgs::Part& part : {args.first, args.second}) {
        AddNormArgs alone;
        alone.norm = part.norm;
        alone.rows = args.rows;
        alone.columns = part.columns;
        const dev::Cost of = CostOf(alone, sizeof(T));
        cost.bytes += of.bytes;
        cost.flops += of.flops;
        cost.dependent_loads = std::max(cost.dependent_loads, of.dependent_loads);
        cost.serial_instructions = of.serial_instructions;
        cost.resident = of.resident;
      }
      return cost;
    });
    const auto kernel = first % 4 == 0 && second % 4 == 0 ? NormPairRows<T, 4> : NormPairRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, args);
  });
}

void AddBias(void* y, DType dtype, const float* bias, int64_t rows, int64_t columns,
             cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto element) {
    using T = decltype(element);
    const bool whole = columns % 4 == 0;
    const auto kernel = whole ? AddBiasRows<T, 4> : AddBiasRows<T, 1>;
    const dim3 grid(static_cast<unsigned>(rows), CeilDiv(columns, kThreads * (whole ? 4 : 1)));
    dev::Declare("bias", [elements = rows * columns] {
      return dev::Cost{elements * int64_t{2 * sizeof(T) + sizeof(float)}, elements};
    });
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, static_cast<T*>(y), bias, columns);
  });
}

}  // namespace coppice::kernels::cuda
