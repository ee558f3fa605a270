// The rows that have needs, moved to the front in place.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kBatch = 8;  // rows in flight

// A thread owns a column (a word W of the row) of one of the matrices and moves it in all rows.
// need_row[i] >= i ascends, so rows that are still to be read lie behind the last row written,
// batch after batch.
template <class W>
DEV_KERNEL void MoveRows(const DeviceStep* step, GatherArgs args, unsigned blocks_of_first) {
  dev::WaitForPrevious();
  const bool second = blockIdx.x >= blocks_of_first;
  // An index would move the parameter to local memory.
  const GatherArgs::Of of = second ? args.of[1] : args.of[0];
  W* const values = static_cast<W*>(of.values);
  const int64_t row_words = of.row_bytes / static_cast<int64_t>(sizeof(W));
  const int64_t c = int64_t{blockIdx.x - (second ? blocks_of_first : 0)} * kThreads + threadIdx.x;
  const int needs = step->needs;
  const int32_t* need_row = step->need_row;
  // When the last row is in its place, so are the rows before it.
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
void LaunchMove(const StepView& step, const GatherArgs& args, cudaStream_t stream) {
  static_assert(GatherArgs::kMost == 2);
  unsigned blocks[GatherArgs::kMost];
  for (int i = 0; i < GatherArgs::kMost; ++i) {
    blocks[i] = CeilDiv(args.of[i].row_bytes, kThreads * int64_t{sizeof(W)});
  }
  dev::Declare("gather of rows", [step = step.step, args] {
    const int needs = step->needs;
    const bool in_place = needs == 0 || step->need_row[needs - 1] == needs - 1;
    dev::Cost cost = {2 * int64_t{needs} * (args.of[0].row_bytes + args.of[1].row_bytes)};
    cost.dependent_loads = 2 + (in_place ? 0 : 2 * CeilDiv(needs, kBatch));
    cost.resident = 8;
    return cost;
  });
  dev::Launch(MoveRows<W>, dim3(blocks[0] + blocks[1]), dim3(kThreads), 0, stream, step.step, args,
              blocks[0]);
}

}  // namespace

void GatherRows(const StepView& step, const GatherArgs& args, cudaStream_t stream) {
  const int64_t first = args.of[0].row_bytes, second = args.of[1].row_bytes;
  if (step.needs == 0 || first + second == 0) return;
  if (first % 16 == 0 && second % 16 == 0) {
    LaunchMove<uint4>(step, args, stream);
  } else {
    LaunchMove<uint32_t>(step, args, stream);
  }
}

}  // namespace coppice::kernels::cuda
