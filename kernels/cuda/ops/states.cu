// The hidden states that a pool keeps beside K and V: stored, read by the rows of a step, gathered.
#include <algorithm>

#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFloats = 4;  // of a load or store
static_assert(kStateUnit == 2 * kFloats);

using StatePack = dev::Pack<dev::bf16, kStateUnit>;

DEV_FUNCTION dev::bf16* StateOf(const DeviceStates& states, int32_t slot) {
  return static_cast<dev::bf16*>(states.values) + int64_t{slot} * states.columns;
}

// Block (row), kStateUnit columns a thread at a time.
DEV_KERNEL void StoreRows(const DeviceStep* step, StoreStatesArgs args) {
  dev::WaitForPrevious();
  const int r = static_cast<int>(blockIdx.x);
  if (r >= (args.after_gather ? step->needs : step->rows)) return;
  const int32_t slot = step->slot[args.after_gather ? step->need_row[r] : r];
  dev::bf16* const state = StateOf(args.states, slot);
  const float* const x = args.x + int64_t{r} * args.states.columns;
  for (int c = static_cast<int>(threadIdx.x) * kStateUnit; c < args.states.columns;
       c += kThreads * kStateUnit) {
    const dev::Pack<float, kFloats> low = dev::LoadPack<kFloats>(x + c);
    const dev::Pack<float, kFloats> high = dev::LoadPack<kFloats>(x + c + kFloats);
    StatePack rounded;
    for (int i = 0; i < kFloats; ++i) {
      rounded.value[i] = dev::FromFloat<dev::bf16>(low.value[i]);
      rounded.value[kFloats + i] = dev::FromFloat<dev::bf16>(high.value[i]);
    }
    dev::StorePack(state + c, rounded);
  }
}

// Likewise.
DEV_KERNEL void LoadRows(const DeviceStep* step, LoadStatesArgs args) {
  dev::WaitForPrevious();
  const int r = static_cast<int>(blockIdx.x);
  const dev::bf16* state = nullptr;
  if (r < step->rows) {
    const int32_t given = step->state[r];
    state = given >= 0
                ? static_cast<const dev::bf16*>(step->states) + int64_t{given} * args.states.columns
                : StateOf(args.states, step->chain[step->chain_begin[r + 1] - 2]);
  }
  float* const x = args.x + int64_t{r} * args.states.columns;
  for (int c = static_cast<int>(threadIdx.x) * kStateUnit; c < args.states.columns;
       c += kThreads * kStateUnit) {
    dev::Pack<float, kFloats> low = {}, high = {};
    if (state != nullptr) {
      const StatePack values = dev::LoadPack<kStateUnit>(state + c);
      for (int i = 0; i < kFloats; ++i) {
        low.value[i] = dev::ToFloat(values.value[i]);
        high.value[i] = dev::ToFloat(values.value[kFloats + i]);
      }
    }
    dev::StorePack(x + c, low);
    dev::StorePack(x + c + kFloats, high);
  }
}

// Block (row), kFloats columns a thread at a time.
template <class T>
DEV_KERNEL void PutRows(const DeviceStep* step, T* x, int32_t columns) {
  dev::WaitForPrevious();
  const int r = static_cast<int>(blockIdx.x);
  if (r >= step->rows || step->state[r] < 0) return;
  const auto* const state =
      static_cast<const dev::bf16*>(step->states) + int64_t{step->state[r]} * columns;
  T* const row = x + int64_t{r} * columns;
  for (int c = static_cast<int>(threadIdx.x) * kFloats; c < columns; c += kThreads * kFloats) {
    const dev::Pack<dev::bf16, kFloats> values = dev::LoadPack<kFloats>(state + c);
    dev::Pack<T, kFloats> out;
    for (int i = 0; i < kFloats; ++i)
      out.value[i] = dev::FromFloat<T>(dev::ToFloat(values.value[i]));
    dev::StorePack(row + c, out);
  }
}

// The slots come with the launch, so that no copy goes before it.
struct SlotList {
  int32_t slot[kMostGathered];
};

// Block (slot of the list), kStateUnit columns a thread at a time.
DEV_KERNEL void GatherSlots(DeviceStates states, const DEV_GRID_CONSTANT SlotList slots,
                            dev::bf16* out) {
  dev::WaitForPrevious();
  const int64_t i = blockIdx.x;
  const dev::bf16* const state = StateOf(states, slots.slot[i]);
  for (int c = static_cast<int>(threadIdx.x) * kStateUnit; c < states.columns;
       c += kThreads * kStateUnit) {
    dev::StorePack(out + i * states.columns + c, dev::LoadPack<kStateUnit>(state + c));
  }
}

// Rows of bf16 from memory to memory, or to or from f32.
dev::Cost CostOf(int64_t rows, int64_t columns, int64_t bytes, int64_t loads) {
  dev::Cost cost = {rows * columns * bytes};
  cost.dependent_loads = loads;
  return cost;
}

}  // namespace

void StoreStates(const StepView& step, const StoreStatesArgs& args, cudaStream_t stream) {
  const int32_t rows = args.after_gather ? step.needs : step.rows;
  if (rows == 0) return;
  dev::Declare("states stored", [step = step.step, args] {
    const int64_t stored = args.after_gather ? step->needs : step->rows;
    return CostOf(stored, args.states.columns, sizeof(float) + sizeof(dev::bf16), 3);
  });
  dev::Launch(StoreRows, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, stream, step.step,
              args);
}

void LoadStates(const StepView& step, const LoadStatesArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  dev::Declare("states loaded", [step = step.step, args] {
    return CostOf(step->rows, args.states.columns, sizeof(float) + sizeof(dev::bf16), 4);
  });
  dev::Launch(LoadRows, dim3(static_cast<unsigned>(step.rows)), dim3(kThreads), 0, stream,
              step.step, args);
}

void PutStates(const StepView& step, const PutStatesArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("states put", [step = step.step, columns = args.columns] {
      return CostOf(step->rows, columns, sizeof(T) + sizeof(dev::bf16), 4);
    });
    dev::Launch(PutRows<T>, dim3(static_cast<unsigned>(step.rows)), dim3(kThreads), 0, stream,
                step.step, static_cast<T*>(args.x), args.columns);
  });
}

void GatherStates(const DeviceStates& states, const int32_t* slots, int64_t count, void* out,
                  cudaStream_t stream) {
  for (int64_t first = 0; first < count; first += kMostGathered) {
    const int64_t some = std::min<int64_t>(kMostGathered, count - first);
    SlotList list = {};
    std::copy_n(slots + first, some, list.slot);
    dev::Declare("gather of states", [some, columns = states.columns] {
      return CostOf(some, columns, 2 * sizeof(dev::bf16), 1);
    });
    dev::Launch(GatherSlots, dim3(static_cast<unsigned>(some)), dim3(kThreads), 0, stream, states,
                list, static_cast<dev::bf16*>(out) + first * states.columns);
  }
}

}  // namespace coppice::kernels::cuda
