// The nodes that were chosen, as rows of the next pass: tokens, and what each row sees.
#include "kernels/cuda/ops/draft_levels.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// The layers' nodes above a row, itself included, and its root.
struct Line {
  int32_t node[kMostLevels][kMostLevelRows];  // [layer][row]
  int32_t root[kMostLevelRows];
};

// Block (forest). Rows after the last node stay as they are: no row sees them.
DEV_KERNEL void DEV_BOUNDS(kThreads, 8)
    PlaceEachLevel(const DeviceLevels* levels, const DeviceStep* step, const DeviceWork* work) {
  dev::WaitForPrevious();
  DEV_SHARED(Line, line, 1);
  const DeviceLevels& all = *levels;
  if (static_cast<int>(blockIdx.x) >= all.count) return;
  const LevelTask task = all.tasks[blockIdx.x];
  const ForestState& state = all.states[task.forest];
  const int count = min(state.count, task.rows), thread = static_cast<int>(threadIdx.x);
  if (thread < count) {
    int node = thread;
    for (int layer = task.level - 1; layer >= 0; --layer) {
      line->node[layer][thread] = node;
      node = state.parent[layer][node];
    }
    line->root[thread] = node;
    const_cast<int32_t*>(step->token)[task.first_row + thread] =
        state.token[task.level - 1][thread];
  }
  __syncthreads();
  const int length = task.root_chain + task.level;
  for (int group = 0; group < all.groups; ++group) {
    const int32_t* const roots = all.chains + group * all.chain_slots + task.chains;
    const int32_t* const own = roots + state.roots * task.root_chain;
    int32_t* const chain = const_cast<int32_t*>(step[group].chain);
    for (int i = thread; i < count * length; i += kThreads) {
      const int row = i / length, place = i % length, layer = place - task.root_chain;
      const int32_t slot = layer < 0 ? roots[line->root[row] * task.root_chain + place]
                                     : own[layer * task.rows + line->node[layer][row]];
      chain[step->chain_begin[task.first_row + row] + place] = slot;
    }
  }
  for (int i = thread; i < count * task.mask_words; i += kThreads) {
    const int row = i / task.mask_words, w = i % task.mask_words;
    uint64_t word = all.masks[task.root_masks + line->root[row] * task.mask_words + w];
    for (int layer = 0; layer < task.level; ++layer) {
      const int32_t bit = all.slots[task.bits + layer * task.rows + line->node[layer][row]];
      if (bit / 64 == w) word |= uint64_t{1} << bit % 64;
    }
    const_cast<uint64_t*>(work->masks)[all.slots[task.row_masks + row] + w] = word;
  }
}

}  // namespace

void PlaceLevels(const LevelsView& levels, const StepView& step, const WorkView& work,
                 cudaStream_t stream) {
  if (levels.room == 0) return;
  dev::Declare("placement of levels", [view = levels.levels] {
    dev::Cost cost = {.serial_instructions = 200, .blocks = view->count};
    for (int i = 0; i < view->count; ++i) {
      const LevelTask& task = view->tasks[i];
      // Task, state, a parent of each level, its chain, where that goes.
      cost.dependent_loads = std::max(cost.dependent_loads, int64_t{task.level} + 4);
      const int64_t rows = min(view->states[task.forest].count, task.rows);
      const int64_t slots = int64_t{view->groups} * (task.root_chain + task.level) + 1;
      cost.bytes += rows * (8 * slots + 16 * task.mask_words);
    }
    return cost;
  });
  dev::Launch(PlaceEachLevel, dim3(static_cast<unsigned>(levels.room)), dim3(kThreads), 0, stream,
              levels.levels, step.step, work.work);
}

}  // namespace coppice::kernels::cuda
