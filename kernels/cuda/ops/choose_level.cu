// The next level of draft forests: by score (docs/algorithms.md 5.9), or by the draws and picks of
// the slots (5.7, with the look-ahead of docs/decisions.md). What
// decoding/seeded/gumbel_coupling_drafter.cc and search_drafter.cc do in f64, step for step, in
// f32.
#include "kernels/cuda/ops/level_draws.h"
#include "kernels/cuda/ops/list_cost.h"

namespace coppice::kernels::cuda {
namespace {

using namespace levels;

struct Candidates {
  uint64_t hash[kCandidates];
  float score[kCandidates], cost[kCandidates], penalty[kCandidates], weight[kCandidates];
  int32_t node[kCandidates], token[kCandidates], replaces[kCandidates];
  int32_t multiplicity[kCandidates], rank[kCandidates];
  int32_t of_slot[kSlots];  // candidate that the slot's predicted output is, or -1
  float best[kSlots], second[kSlots];
  int32_t best_of[kSlots];
};

// Candidates for the level, as keys: larger is better. Ids: node * kSupport + entry, then slots.
struct LevelKeys {
  const DeviceLevels& all;
  const LevelTask& task;
  const Level* level;
  const LevelScratch* rows;

  template <class F>
  DEV_FUNCTION void Each(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < level->count * kSupport; i += kSelectThreads) {
      const int node = i / kSupport;
      if (i % kSupport >= rows->entries[node] || Stops(all, task, rows->token[i])) continue;
      if (task.picks == 0) {
        f(KeyBits(level->score[node] + rows->log_prob[i]), static_cast<uint32_t>(i));
      } else if (rows->cost[i] < FloatInfinity()) {
        f(0x7f800000u - __float_as_uint(rows->cost[i]), static_cast<uint32_t>(i));
      }
    }
    const int slot = static_cast<int>(threadIdx.x);
    if (task.picks != 0 && slot < level->slots && level->listed[slot] != 0) {
      f(0x7f800000u, static_cast<uint32_t>(kEntries + slot));
    }
  }
};

DEV_FUNCTION int ListCandidates(const DeviceLevels& all, const LevelTask& task, const Level* level,
                                const LevelScratch* rows, BlockReduce* block, Candidates* list) {
  const int want = task.picks == 0 ? task.width : task.width + max(task.width, kHedges);
  uint32_t least = 0;
  const LevelKeys keys = {all, task, level, rows};
  const int count =
      SelectLargest(keys, want, kIdBits, block, &least, [&](int place, uint32_t, uint32_t id) {
        if (id >= kEntries) {
          const int slot = static_cast<int>(id) - kEntries, node = level->predicted[slot];
          list->node[place] = node;
          list->token[place] = level->known[slot];
          list->score[place] = level->score[node] + level->known_log_prob[slot];
          list->cost[place] = list->penalty[place] = 0;
          list->replaces[place] = slot;
          return;
        }
        const int node = static_cast<int>(id) / kSupport;
        list->node[place] = node;
        list->token[place] = rows->token[id];
        const float score = level->score[node] + rows->log_prob[id];
        list->score[place] = score;
        list->cost[place] = task.picks == 0 ? -score : rows->cost[id];
        list->penalty[place] = task.picks == 0 ? 0.0f : rows->cost[id];
        list->replaces[place] = task.picks == 0 ? -1 : rows->replaces[id];
      });
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < count; c += kSelectThreads) {
    list->hash[c] = PathHash(level->hash[list->node[c]], list->token[c]);
  }
  return count;
}

// Adds to each candidate's cost how far it is from being picked by a slot of the next layer.
DEV_FUNCTION void RankByNextPicks(const DeviceLevels& all, const LevelTask& task, int count,
                                  Level* level, Candidates* list) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < level->slots) {
    int found = -1;
    for (int c = 0; c < count; ++c) {
      if (list->token[c] == level->drawn[thread] &&
          list->node[c] == level->reach_node[thread * kReaches]) {
        found = c;
      }
    }
    list->of_slot[thread] = found;
  }
  int slots = task.beam_width;
  if (task.refill == 0) {
    slots = 0;
    for (int s = 0; s < level->slots; ++s) slots += Stops(all, task, level->drawn[s]) ? 0 : 1;
  }
  __syncthreads();
  if (thread < count) {
    int holds = 0;
    for (int s = 0; s < level->slots; ++s) holds += list->of_slot[s] == thread ? 1 : 0;
    list->multiplicity[thread] = holds;
    list->weight[thread] = list->score[thread] + LogCount(task, holds);
  }
  __syncthreads();
  for (int i = thread; i < slots * count; i += kSelectThreads) {
    const int slot = i / count, c = i % count;
    level->pick[slot * kCandidates + c] =
        list->weight[c] + PickNoise(task.seed, list->hash[c], static_cast<uint32_t>(slot));
  }
  __syncthreads();
  if (thread < slots) {
    const float* const key = level->pick + thread * kCandidates;
    float best = -FloatInfinity(), second = -FloatInfinity();
    int best_of = -1;
    for (int c = 0; c < count; ++c) {
      if (list->multiplicity[c] == 0) continue;
      if (key[c] > best) {
        second = best;
        best = key[c];
        best_of = c;
      } else {
        second = fmaxf(second, key[c]);
      }
    }
    list->best[thread] = best;
    list->second[thread] = second;
    list->best_of[thread] = best_of;
  }
  __syncthreads();
  if (thread >= count || slots == 0) return;
  // A hedge does not compete with the output that it would replace.
  int replaced = list->multiplicity[thread] > 0 ? -1 : list->of_slot[list->replaces[thread]];
  if (replaced >= 0 && list->multiplicity[replaced] != 1) replaced = -1;
  float gap = FloatInfinity();
  for (int s = 0; s < slots; ++s) {
    const bool alone = list->best_of[s] >= 0 && list->best_of[s] == replaced;
    const float rival = alone ? list->second[s] : list->best[s];
    gap = fminf(gap, fmaxf(0.0f, rival - level->pick[s * kCandidates + thread]));
  }
  list->cost[thread] += gap;
}

// Equal costs are common, those of picked outputs are 0: then node and token decide, as on the
// host.
DEV_FUNCTION bool Precedes(const Candidates& list, int a, int b) {
  if (list.cost[a] != list.cost[b]) return list.cost[a] < list.cost[b];
  if (list.node[a] != list.node[b]) return list.node[a] < list.node[b];
  return list.token[a] < list.token[b];
}

// The `width` cheapest candidates become the next level, in increasing cost.
DEV_FUNCTION void Append(const DeviceLevels& all, const LevelTask& task, int count,
                         const Level* level, Candidates* list, ForestState* state) {
  const int thread = static_cast<int>(threadIdx.x);
  const int kept = min(count, task.width);
  if (thread < count) {
    int rank = 0;
    for (int c = 0; c < count; ++c) {
      rank += Precedes(*list, c, thread) ? 1 : 0;
    }
    list->rank[thread] = rank;
    if (rank < kept) {
      state->token[task.level][rank] = list->token[thread];
      state->parent[task.level][rank] = list->node[thread];
      state->hash[rank] = list->hash[thread];
      state->score[rank] = list->score[thread];
      state->cost[rank] = list->penalty[thread];
    }
  }
  __syncthreads();
  if (thread != 0) return;
  state->layer_count[task.level] = kept;
  state->count = kept;
  if (task.picks == 0) return;
  // The slots of the next level. A slot that is predicted to end is refilled or gone.
  int next = 0;
  for (int s = 0; s < level->slots; ++s) {
    if (Stops(all, task, level->drawn[s])) continue;
    const int c = list->of_slot[s];
    state->predicted[next++] = c >= 0 && list->rank[c] < kept ? list->rank[c] : -1;
  }
  if (task.refill != 0) {
    for (; next < task.beam_width; ++next) state->predicted[next] = -1;
    next = task.beam_width;
  }
  state->slots = next;
}

// The level's nodes: the roots, or what the level before has left.
DEV_FUNCTION void Begin(const DeviceLevels& all, const LevelTask& task, Level* level,
                        ForestState* state) {
  const int thread = static_cast<int>(threadIdx.x);
  const LevelStart& start = all.starts[task.forest];
  const bool first = task.level == 0;
  if (first && thread == 0) {
    state->roots = start.roots;
    state->count = start.roots;
    state->slots = start.slots;
    state->bad_level = state->bad_token = -1;
    for (int l = 0; l < kMostLevels; ++l) state->layer_count[l] = 0;
  }
  __syncthreads();
  if (thread == 0) {
    level->count = state->count;
    level->slots = task.picks == 0 ? 0 : state->slots;
  }
  if (thread < kRows) {
    level->hash[thread] = first ? start.hash[thread] : state->hash[thread];
    level->score[thread] = first ? start.score[thread] : state->score[thread];
    level->cost[thread] = first ? 0.0f : state->cost[thread];
  }
  if (thread < kSlots) {
    level->predicted[thread] = first ? start.slot_root[thread] : state->predicted[thread];
    level->known[thread] = first ? start.slot_token[thread] : -1;
    level->known_log_prob[thread] = first ? start.slot_log_prob[thread] : 0.0f;
  }
  __syncthreads();
}

// Block (forest).
DEV_KERNEL void DEV_BOUNDS(kSelectThreads, 1)
    ChooseEachLevel(const DeviceLevels* levels, const DeviceLists* lists) {
  dev::WaitForPrevious();
  DEV_SHARED(Level, level, 1);
  // Rows are read before there are candidates.
  constexpr size_t kStaged = kSelectWarps * kListed * sizeof(uint64_t);
  DEV_SHARED(float, shared, (sizeof(Candidates) > kStaged ? sizeof(Candidates) : kStaged) / 4);
  const DeviceLevels& all = *levels;
  if (static_cast<int>(blockIdx.x) >= all.count) return;
  const LevelTask task = all.tasks[blockIdx.x];
  ForestState* const state = all.states + task.forest;
  LevelScratch* const rows = all.scratch + task.forest;
  BlockReduce block;
  Begin(all, task, level, state);
  const int nodes = level->count;
  if (nodes == 0 || FindBadRow(*lists, task, nodes, &block, state)) return;
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  uint64_t* const sorted = reinterpret_cast<uint64_t*>(shared) + warp * kListed;
  for (int n = warp; n < nodes; n += kSelectWarps) {
    ReadRow(*lists, task, n, rows, sorted);
    __syncwarp();
  }
  __syncthreads();
  if (task.picks != 0) {
    PickNodes(task, level);
    __syncthreads();
    Draw(task, rows, level);
    __syncthreads();
    CostTokens(level, rows);
    __syncthreads();
    ListKnown(all, task, rows, level);
    __syncthreads();
  }
  Candidates* const list = reinterpret_cast<Candidates*>(shared);
  const int count = ListCandidates(all, task, level, rows, &block, list);
  __syncthreads();
  if (task.picks != 0) {
    RankByNextPicks(all, task, count, level, list);
    __syncthreads();
  }
  Append(all, task, count, level, list, state);
}

}  // namespace

void ChooseLevels(const LevelsView& levels, const ListsView& lists, cudaStream_t stream) {
  if (levels.room == 0) return;
  dev::Declare("choice of levels", [view = levels.levels] {
    // Each list once, and the state. Task, state, list, record; then what a warp left for another.
    dev::Cost cost = {.dependent_loads = 4 + 3, .blocks = view->count};
    for (int i = 0; i < view->count; ++i) {
      const LevelTask& task = view->tasks[i];
      const int64_t rows = task.level == 0 ? view->starts[task.forest].roots : task.rows;
      cost.serial_instructions = std::max(
          cost.serial_instructions, ChoiceInstructions(rows, task.beam_width, task.picks != 0));
      const int64_t nodes =
          task.level == 0 ? view->starts[task.forest].roots : view->states[task.forest].count;
      cost.bytes += nodes * (task.support + 17) * 8 + nodes * task.support * 16 + task.width * 24;
      // The keys of draws, written and read.
      if (task.picks != 0) cost.bytes += int64_t{task.beam_width} * kReaches * task.support * 8;
    }
    return cost;
  });
  dev::Launch(ChooseEachLevel, dim3(static_cast<unsigned>(levels.room)), dim3(kSelectThreads), 0,
              stream, levels.levels, lists.lists);
}

}  // namespace coppice::kernels::cuda
