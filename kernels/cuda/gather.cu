// The rows that have needs, moved to the front in place.
#include "kernels/cuda/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kBatch = 8;  // rows in flight

// A thread owns a column (a word W of the row) and moves it in all rows. need_row[i] >= i ascends,
// so rows that are still to be read lie behind the last row written, batch after batch.
template <class W>
DEV_KERNEL void MoveRows(const DeviceStep* step, W* values, int64_t row_words) {
  dev::WaitForPrevious();
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int needs = step->needs;
  const int32_t* need_row = step->need_row;
  // When the last row is in its place, so are those before it.
  if (c >= row_words || needs == 0 || need_row[needs - 1] == needs - 1) return;
  for (int first = 0; first < needs; first += kBatch) {
    W moved[kBatch];
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < needs) moved[i] = values[need_row[first + i] * row_words + c];
    }
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < needs) values[(first + i) * row_words + c] = moved[i];
    }
  }
}

template <class W>
void LaunchMove(const StepView& step, void* values, int64_t row_bytes, cudaStream_t stream) {
  const int64_t words = row_bytes / static_cast<int64_t>(sizeof(W));
  dev::Declare("gather of rows", [step = step.step, row_bytes] {
    return dev::Cost{2 * int64_t{step->needs} * row_bytes};
  });
  dev::Launch(MoveRows<W>, dim3(CeilDiv(words, kThreads)), dim3(kThreads), 0, stream, step.step,
              static_cast<W*>(values), words);
}

}  // namespace

void GatherRows(const StepView& step, void* values, int64_t row_bytes, cudaStream_t stream) {
  if (step.needs == 0 || row_bytes == 0) return;
  if (row_bytes % 16 == 0) {
    LaunchMove<uint4>(step, values, row_bytes, stream);
  } else {
    LaunchMove<uint32_t>(step, values, row_bytes, stream);
  }
}

}  // namespace coppice::kernels::cuda
