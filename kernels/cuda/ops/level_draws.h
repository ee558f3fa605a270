// For choosing a level (choose_level.cu): the draft rows of its nodes, and what the slots draw from
// them. One block works on one forest. For .cu files.
#pragma once

#include "kernels/cuda/ops/draft_levels.h"
#include "kernels/cuda/ops/gumbel_noise.h"
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/list_select.h"
#include "kernels/cuda/ops/warp_sort.h"

namespace coppice::kernels::cuda::levels {

inline constexpr int kRows = kMostLevelRows, kSlots = kMostLevelSlots, kSupport = kMostLevelSupport;
inline constexpr int kReaches = kLevelReaches;
inline constexpr int kHedges = 24;  // candidates beyond the width that are ranked, at least
inline constexpr int kCandidates =
    2 * kMostLevelRows > kMostLevelRows + kHedges ? 2 * kMostLevelRows : kMostLevelRows + kHedges;
inline constexpr int kListed = 128;  // entries of a row's record that a warp looks at
static_assert(kSupport + 17 + kMostLevelBias <= kListed);
inline constexpr int kEntries = kRows * kSupport;  // a candidate behind these is a known output
inline constexpr int kIdBits = 12;
static_assert(kEntries + kSlots <= 1 << kIdBits);

DEV_FUNCTION float FloatInfinity() { return __uint_as_float(0x7f800000u); }

// The state of a forest at this level, in the shared memory of its block.
struct Level {
  uint64_t hash[kRows];
  float score[kRows], cost[kRows];
  int32_t multiplicity[kRows];  // slots that are predicted to hold the node
  int32_t predicted[kSlots];
  int32_t known[kSlots];  // token that the slot is known to take, or -1
  float known_log_prob[kSlots];
  int32_t drawn[kSlots];   // token that the slot is predicted to take
  int32_t listed[kSlots];  // whether a known output is a candidate of its own
  int32_t reaches[kSlots];
  int32_t reach_node[kSlots * kReaches];
  float reach_cost[kSlots * kReaches], reach_key[kSlots * kReaches];  // key: that of the best draw
  float pick[kSlots * kCandidates];  // keys by which slots pick nodes, then candidates
  int32_t count, slots, picked;
};

// log m of a beam that this many slots hold.
DEV_FUNCTION float LogCount(const LevelTask& task, int slots) {
  return task.set_semantics != 0 || slots <= 1 ? 0.0f : LogOf(Split(static_cast<float>(slots)));
}

DEV_FUNCTION bool Stops(const DeviceLevels& all, const LevelTask& task, int32_t token) {
  for (int i = task.stop_begin; i < task.stop_end; ++i) {
    if (all.stops[i] == token) return true;
  }
  return false;
}

// Entry e of a record as a number that orders as the entries do: the value, then the lower token. 0
// if its value is -inf.
DEV_FUNCTION uint64_t EntryOrder(float x, int32_t token) {
  const uint32_t key = KeyBits(x);
  return key == 0 ? 0 : uint64_t{key} << 32 | ~static_cast<uint32_t>(token);
}
DEV_FUNCTION float ValueOf(uint64_t entry) { return KeyValue(static_cast<uint32_t>(entry >> 32)); }
DEV_FUNCTION int32_t TokenOf(uint64_t entry) {
  return static_cast<int32_t>(~static_cast<uint32_t>(entry));
}

DEV_FUNCTION uint64_t ReadEntry(const DeviceLists& lists, const LevelTask& task,
                                const ListTask& list, int e) {
  const uint32_t* const record = lists.records + list.record;
  const int count = reinterpret_cast<const ListHeader*>(record)->count;
  const int biased = list.bias_end - list.bias_begin;
  const uint32_t* const logits = record + kHeaderWords;
  const uint32_t* const pairs = logits + biased;
  if (e < count) {
    return EntryOrder(__uint_as_float(pairs[2 * e + 1]) * task.inverse_temperature,
                      static_cast<int32_t>(pairs[2 * e]));
  }
  if (e >= count + biased) return 0;
  const TokenBias* const bias = lists.bias + list.bias_begin;
  const int32_t token = bias[e - count].token;
  double sum = __uint_as_float(logits[e - count]);
  for (int i = 0; i < biased; ++i) {
    if (bias[i].token != token) continue;
    if (i < e - count) return 0;  // an entry before stands for the token
    sum += bias[i].bias;
  }
  return EntryOrder(static_cast<float>(sum) * task.inverse_temperature, token);
}

// A warp's node: its `support` likeliest tokens with log q, from the first 32 kEach entries of the
// record of its list. sorted [32 kEach] belongs to the warp.
template <int kEach>
DEV_FUNCTION void ReadEntries(const DeviceLists& lists, const LevelTask& task, int node,
                              LevelScratch* out, uint64_t* sorted) {
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const ListTask& list = lists.lists[task.first_list + node];
  uint64_t entry[kEach], in_order[kEach];
  DEV_UNROLL
  for (int j = 0; j < kEach; ++j) {
    entry[j] = in_order[j] = ReadEntry(lists, task, list, lane + j * dev::kWarpSize);
  }
  SortWarp(in_order);
  DEV_UNROLL
  for (int j = 0; j < kEach; ++j) sorted[lane * kEach + j] = in_order[j];
  __syncwarp();
  const uint64_t last = max(sorted[task.support - 1], uint64_t{1});
  const float largest = ValueOf(sorted[0]);
  float sum = 0;
  int kept = 0;
  DEV_UNROLL
  for (int j = 0; j < kEach; ++j) {
    if (entry[j] < last) continue;
    sum += dev::Exp2((ValueOf(entry[j]) - largest) * 1.44269504f);
    ++kept;
  }
  sum = dev::WarpSum(sum);
  kept = static_cast<int>(__reduce_add_sync(dev::kFullWarp, static_cast<unsigned>(kept)));
  const float log_sum = kept > 0 ? LogOf(Split(sum)) : 0.0f;
  for (int e = lane; e < kept; e += dev::kWarpSize) {
    out->token[node * kSupport + e] = TokenOf(sorted[e]);
    out->log_prob[node * kSupport + e] = fminf(ValueOf(sorted[e]) - largest - log_sum, 0.0f);
  }
  if (lane != 0) return;
  out->entries[node] = max(kept, 1);
  if (kept > 0) return;
  out->token[node * kSupport] = 0;  // without a finite logit the row is token 0, as on the host
  out->log_prob[node * kSupport] = 0;
}

// sorted [kListed] belongs to the warp.
DEV_FUNCTION void ReadRow(const DeviceLists& lists, const LevelTask& task, int node,
                          LevelScratch* out, uint64_t* sorted) {
  const ListTask& list = lists.lists[task.first_list + node];
  const int count = reinterpret_cast<const ListHeader*>(lists.records + list.record)->count;
  if (count + list.bias_end - list.bias_begin <= kListed / 2) {
    ReadEntries<kListed / 2 / dev::kWarpSize>(lists, task, node, out, sorted);
  } else {
    ReadEntries<kListed / dev::kWarpSize>(lists, task, node, out, sorted);
  }
}

// The first node whose row is not valid ends the forest.
DEV_FUNCTION bool FindBadRow(const DeviceLists& lists, const LevelTask& task, int count,
                             BlockReduce* block, ForestState* state) {
  const auto header = [&](int node) {
    return reinterpret_cast<const ListHeader*>(lists.records +
                                               lists.lists[task.first_list + node].record);
  };
  const int thread = static_cast<int>(threadIdx.x);
  const bool bad = thread < count && header(thread)->bad_token >= 0;
  const uint32_t first = block->Min(bad ? static_cast<uint32_t>(thread) : 0xffffffffu);
  if (first == 0xffffffffu) return false;
  if (thread != 0) return true;
  const ListHeader* const of = header(static_cast<int>(first));
  state->bad_level = task.level;
  state->bad_node = static_cast<int32_t>(first);
  state->bad_token = of->bad_token;
  state->bad_logit = of->bad_logit;
  state->count = 0;
  return true;
}

// The nodes that each slot may pick, the prediction first. At level 0 there is only the exact pick.
DEV_FUNCTION void PickNodes(const LevelTask& task, Level* level) {
  const int thread = static_cast<int>(threadIdx.x), count = level->count;
  if (thread < count) {
    int holds = 0;
    for (int s = 0; s < level->slots; ++s) holds += level->predicted[s] == thread ? 1 : 0;
    level->multiplicity[thread] = holds;
  }
  bool any = false;
  for (int s = 0; s < level->slots; ++s) any |= level->predicted[s] >= 0;
  __syncthreads();
  for (int i = thread; i < level->slots * count; i += kSelectThreads) {
    const int slot = i / count, n = i % count;
    level->pick[slot * kRows + n] =
        level->score[n] + LogCount(task, level->multiplicity[n]) +
        PickNoise(task.seed, level->hash[n], static_cast<uint32_t>(slot));
  }
  __syncthreads();
  if (thread >= level->slots) return;
  int32_t* const node = level->reach_node + thread * kReaches;
  float* const cost = level->reach_cost + thread * kReaches;
  cost[0] = 0;
  level->reaches[thread] = 1;
  if (task.level == 0) {
    node[0] = level->predicted[thread];
    return;
  }
  const float* const key = level->pick + thread * kRows;
  int best = -1, reaches = 1;
  for (int n = 0; n < count; ++n) {
    if ((level->multiplicity[n] > 0 || !any) && (best < 0 || key[n] > key[best])) best = n;
  }
  node[0] = best;
  for (int n = 0; n < count; ++n) {
    if (n == best) continue;
    // A single slot leads to a single beam: if that is not the predicted one, nothing rivals it.
    const float gap = level->slots == 1 ? 0.0f : fmaxf(0.0f, key[best] - key[n]);
    const float of = gap + level->cost[n];
    if (reaches == kReaches && !(of < cost[kReaches - 1])) continue;
    if (reaches < kReaches) ++reaches;
    int place = reaches - 1;
    for (; place > 1 && of < cost[place - 1]; --place) {
      cost[place] = cost[place - 1];
      node[place] = node[place - 1];
    }
    cost[place] = of;
    node[place] = n;
  }
  level->reaches[thread] = reaches;
}

DEV_FUNCTION float DrawKey(const LevelTask& task, const Level* level, const LevelScratch* rows,
                           int slot, int node, int entry) {
  const int32_t token = rows->token[node * kSupport + entry];
  const NoisePair noise = TokenNoise(task.seed, level->hash[node], static_cast<uint32_t>(slot),
                                     static_cast<uint32_t>(token));
  return rows->log_prob[node * kSupport + entry] + (token % 2 == 0 ? noise.even : noise.odd);
}

// The draw of each slot from each node that it reaches; of the first, the slot's predicted output.
DEV_FUNCTION void Draw(const LevelTask& task, LevelScratch* rows, Level* level) {
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  for (int i = warp; i < level->slots * kReaches; i += kSelectWarps) {
    const int slot = i / kReaches, reach = i % kReaches;
    if (level->known[slot] >= 0) {
      if (lane == 0 && reach == 0) level->drawn[slot] = level->known[slot];
      continue;
    }
    if (reach >= level->reaches[slot]) continue;
    const int node = level->reach_node[i];
    float best = -FloatInfinity();
    int32_t token = 0x7fffffff;
    for (int e = lane; e < rows->entries[node]; e += dev::kWarpSize) {
      const float key = DrawKey(task, level, rows, slot, node, e);
      rows->key[i * kSupport + e] = key;
      const int32_t of = rows->token[node * kSupport + e];
      if (key > best || (key == best && of < token)) {
        best = key;
        token = of;
      }
    }
    const float largest = dev::WarpMax(best);
    const uint32_t drawn = __reduce_min_sync(
        dev::kFullWarp, best == largest ? static_cast<uint32_t>(token) : 0xffffffffu);
    if (lane != 0) continue;
    level->reach_key[i] = largest;
    if (reach == 0) level->drawn[slot] = static_cast<int32_t>(drawn);
  }
}

// How far each token is from being an output, least over the slots.
DEV_FUNCTION void CostTokens(const Level* level, LevelScratch* rows) {
  for (int i = static_cast<int>(threadIdx.x); i < level->count * kSupport; i += kSelectThreads) {
    const int node = i / kSupport, entry = i % kSupport;
    if (entry >= rows->entries[node]) continue;
    float least = FloatInfinity();
    int32_t replaces = -1;
    for (int slot = 0; slot < level->slots; ++slot) {
      if (level->known[slot] >= 0) continue;
      for (int reach = 0; reach < level->reaches[slot]; ++reach) {
        const int at = slot * kReaches + reach;
        if (level->reach_node[at] != node) continue;
        const float gap = level->reach_key[at] - rows->key[at * kSupport + entry];
        const float cost = level->reach_cost[at] + fmaxf(gap, 0.0f);
        if (!(cost < least)) continue;
        least = cost;
        replaces = slot;
      }
    }
    rows->cost[i] = least;
    rows->replaces[i] = replaces;
  }
}

// Known outputs that no row lists: each once.
DEV_FUNCTION void ListKnown(const DeviceLevels& all, const LevelTask& task,
                            const LevelScratch* rows, Level* level) {
  const int slot = static_cast<int>(threadIdx.x);
  if (slot >= level->slots) return;
  const int32_t token = level->known[slot], node = level->predicted[slot];
  bool listed = token >= 0 && !Stops(all, task, token);
  for (int s = 0; listed && s < slot; ++s) {
    listed = level->known[s] != token || level->predicted[s] != node;
  }
  for (int e = 0; listed && e < rows->entries[node]; ++e) {
    const int at = node * kSupport + e;
    listed = rows->token[at] != token || !(rows->cost[at] < FloatInfinity());
  }
  level->listed[slot] = listed ? 1 : 0;
}

}  // namespace coppice::kernels::cuda::levels
