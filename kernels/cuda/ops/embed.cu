// Rows of the embedding matrix, and of the matrix of learned positions.
#include "kernels/cuda/ops/block_matrix.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// One block a row, N columns a thread at a time.
template <class T, int N>
DEV_KERNEL void CopyRows(const DeviceStep* step, EmbedArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = step->token[r] - args.first_row;
  const bool held = row >= 0 && row < args.matrix_rows;
  const T* source = static_cast<const T*>(args.matrix) + (held ? row : 0) * args.columns;
  float* x = args.x + r * args.columns;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    dev::Pack<float, N> out;
    for (int i = 0; i < N; ++i) out.value[i] = 0.0f;
    if (held) {
      const dev::Pack<T, N> in = dev::LoadPack<N>(source + c);
      for (int i = 0; i < N; ++i) out.value[i] = dev::ToFloat(in.value[i]) * args.scale;
    }
    dev::StorePack(x + c, out);
  }
}

// Likewise.
template <class T, int N>
DEV_KERNEL void AddPositionRows(const DeviceStep* step, PositionArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = int64_t{step->position[r]} + args.offset;
  const T* source = static_cast<const T*>(args.matrix) + row * args.columns;
  float* x = args.x + r * args.columns;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    dev::Pack<float, N> sum = dev::LoadPack<N>(x + c);
    const dev::Pack<T, N> added = dev::LoadPack<N>(source + c);
    for (int i = 0; i < N; ++i) sum.value[i] += dev::ToFloat(added.value[i]);
    dev::StorePack(x + c, sum);
  }
}

// The value of a matrix in blocks, as T, in which products have it.
template <class T, bool kFourBits>
DEV_FUNCTION float BlockValue(const void* matrix, int64_t columns, int64_t row, int64_t column) {
  const auto* const unit = static_cast<const uint8_t*>(matrix) +
                           row / kBlockPanel * BlockPanelBytes(kFourBits, columns) +
                           column / kBlockUnit * BlockUnitBytes(kFourBits);
  const BlockPlace place = PlaceInUnit(kFourBits, row % kBlockPanel, column % kBlockUnit);
  const float scale = dev::ToFloat(*reinterpret_cast<const dev::f16*>(unit + place.scale));
  const int byte = unit[place.code];
  const int code = kFourBits ? (byte >> place.shift & 15) - 8 : byte - 128;
  return dev::ToFloat(dev::FromFloat<T>(scale * static_cast<float>(code)));
}

// One block a row, likewise.
template <class T, bool kFourBits>
DEV_KERNEL void CopyBlockRows(const DeviceStep* step, EmbedArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = step->token[r] - args.first_row;
  const bool held = row >= 0 && row < args.matrix_rows;
  for (int64_t c = threadIdx.x; c < args.columns; c += kThreads) {
    const float value =
        held ? BlockValue<T, kFourBits>(args.matrix, args.columns, row, c) * args.scale : 0.0f;
    args.x[r * args.columns + c] = value;
  }
}
template <class T, bool kFourBits>
DEV_KERNEL void AddBlockPositionRows(const DeviceStep* step, PositionArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = int64_t{step->position[r]} + args.offset;
  for (int64_t c = threadIdx.x; c < args.columns; c += kThreads)
    args.x[r * args.columns + c] += BlockValue<T, kFourBits>(args.matrix, args.columns, row, c);
}

// Calls f with the type of the values and whether a code has 4 bits.
template <class F>
void WithBlocks(DType dtype, DType values, F f) {
  const auto with_type = [&](auto element) {
    dtype == DType::kQ4_0 ? f(element, std::true_type()) : f(element, std::false_type());
  };
  values == DType::kF16 ? with_type(dev::f16()) : with_type(dev::bf16());
}

// Bytes that rows of blocks take.
int64_t BlockRowBytes(DType dtype, int64_t rows, int64_t columns) {
  return rows * BlockPanelBytes(dtype == DType::kQ4_0, columns) / kBlockPanel;
}

}  // namespace

void Embed(const StepView& step, const EmbedArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows));
  if (IsDeviceBlocks(args.dtype)) {
    WithBlocks(args.dtype, args.value_dtype, [&](auto element, auto four_bits) {
      using T = decltype(element);
      dev::Declare("embedding", [rows = step.rows, args] {
        const int64_t elements = int64_t{rows} * args.columns;
        return dev::Cost{
            BlockRowBytes(args.dtype, rows, args.columns) + elements * int64_t{sizeof(float)},
            2 * elements};
      });
      dev::Launch(CopyBlockRows<T, four_bits()>, grid, dim3(kThreads), 0, stream, step.step, args);
    });
    return;
  }
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("embedding", [rows = step.rows, args] {
      const int64_t elements = int64_t{rows} * args.columns;
      return dev::Cost{.bytes = elements * int64_t{sizeof(T) + sizeof(float)},
                       .flops = args.scale == 1 ? 0 : elements,
                       .cold_bytes = elements * int64_t{sizeof(T)},
                       .dependent_loads = 3};
    });
    const auto kernel = args.columns % 4 == 0 ? CopyRows<T, 4> : CopyRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args);
  });
}

void AddPositions(const StepView& step, const PositionArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows));
  if (IsDeviceBlocks(args.dtype)) {
    WithBlocks(args.dtype, args.value_dtype, [&](auto element, auto four_bits) {
      using T = decltype(element);
      dev::Declare("learned positions", [rows = step.rows, args] {
        const int64_t elements = int64_t{rows} * args.columns;
        return dev::Cost{
            BlockRowBytes(args.dtype, rows, args.columns) + elements * int64_t{2 * sizeof(float)},
            2 * elements};
      });
      dev::Launch(AddBlockPositionRows<T, four_bits()>, grid, dim3(kThreads), 0, stream, step.step,
                  args);
    });
    return;
  }
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("learned positions", [rows = step.rows, args] {
      const int64_t elements = int64_t{rows} * args.columns;
      return dev::Cost{elements * int64_t{sizeof(T) + 2 * sizeof(float)}, elements};
    });
    const auto kernel = args.columns % 4 == 0 ? AddPositionRows<T, 4> : AddPositionRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args);
  });
}

}  // namespace coppice::kernels::cuda
