// The kernels that grow draft forests on the device (plan/forest_plan.h), as host functions like
// those of launch.h. After the head of a forward pass, ChooseLevels takes the nodes of the next
// level from the candidate lists of the rows; before the body of the next one, PlaceLevels writes
// them into its plan. The rule is that of the drafters of decoding/seeded, with keys in f32. Any
// tokens may be drafted, so no decision depends on it. What differs between forward passes is read
// from device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// Capacities of the kernels for one forest.
inline constexpr int kMostLevelRows = 32;     // nodes of a level, roots
inline constexpr int kMostLevelSlots = 32;    // output slots
inline constexpr int kMostLevelSupport = 64;  // tokens of a draft row
inline constexpr int kMostLevelBias = 32;     // biases of a draft row
inline constexpr int kMostLevels = 8;
inline constexpr int kLevelReaches = 4;  // nodes that a slot draws from: "its 4 cheapest n"

// One forest at one level.
struct LevelTask {
  int32_t forest = 0;  // index of its state
  int32_t level = 0;
  int32_t first_list = 0;  // index in DeviceLists::lists: one list for each row
  int32_t width = 0, support = 0, picks = 0;
  int32_t beam_width = 0, refill = 0, set_semantics = 0;
  int32_t stop_begin = 0, stop_end = 0;  // range of DeviceLevels::stops
  float inverse_temperature = 1;
  uint64_t seed = 0;
  // Its rows in the forward pass, from level 1 on. A row's chain is that of its root, then a slot
  // of each level. A row's mask is the same, as bits.
  int32_t first_row = 0, rows = 0;
  int32_t root_chain = 0;  // slots of a root's chain
  int32_t chains = 0;      // in DeviceLevels::chains: [roots][root_chain], then [level][rows]
  int32_t mask_words = 0;  // 0: no masks
  int32_t root_masks = 0;  // in DeviceLevels::masks: [roots][mask_words]
  int32_t bits = 0;        // in DeviceLevels::slots: [level][rows] bit of a slot in a mask
  int32_t row_masks = 0;   // in DeviceLevels::slots: [rows] first word in DeviceWork::masks
};

// How a forest begins.
struct LevelStart {
  uint64_t hash[kMostLevelRows] = {};
  float score[kMostLevelRows] = {};  // nats, less the largest of all roots
  int32_t slot_root[kMostLevelSlots] = {};
  int32_t slot_token[kMostLevelSlots] = {};  // -1: not known
  float slot_log_prob[kMostLevelSlots] = {};
  int32_t roots = 0, slots = 0;
};

// A forest as far as it has grown.
struct ForestState {
  // Values of the `count` nodes of the level. count 0: the forest has ended.
  uint64_t hash[kMostLevelRows];
  float score[kMostLevelRows];
  float cost[kMostLevelRows];  // distance from the prediction, nats
  int32_t count;
  int32_t roots;
  int32_t slots;
  int32_t predicted[kMostLevelSlots];  // node that the slot is predicted to hold, or -1
  // As in GrownForest.
  int32_t bad_level, bad_node, bad_token;
  float bad_logit;
  int32_t layer_count[kMostLevels];
  int32_t token[kMostLevels][kMostLevelRows];
  int32_t parent[kMostLevels][kMostLevelRows];
};

// The draft rows of a level, while it is chosen.
struct LevelScratch {
  int32_t token[kMostLevelRows * kMostLevelSupport];     // [node][entry], most likely first
  float log_prob[kMostLevelRows * kMostLevelSupport];    // log q
  float cost[kMostLevelRows * kMostLevelSupport];        // distance from being an output, nats
  int32_t replaces[kMostLevelRows * kMostLevelSupport];  // slot whose output it would replace
  int32_t entries[kMostLevelRows];
  // Keys by which a slot draws from the entries of a node that it reaches.
  float key[kMostLevelSlots * kLevelReaches * kMostLevelSupport];  // [slot][reach][entry]
};

// What a forward pass asks for; in device memory itself, as DeviceLists.
struct DeviceLevels {
  const LevelTask* tasks = nullptr;    // [count]
  const LevelStart* starts = nullptr;  // [forests], of level 0
  const int32_t* stops = nullptr;      // token ids
  const int32_t* chains = nullptr;     // [groups of layers][chain_slots] KV slots
  const int32_t* slots = nullptr;      // what LevelTask says
  const uint64_t* masks = nullptr;
  ForestState* states = nullptr;    // [forests]
  LevelScratch* scratch = nullptr;  // [forests]
  int32_t count = 0;
  int32_t groups = 1, chain_slots = 0;
};

// The part of DeviceLevels that a launch is given: room for this many forests.
struct LevelsView {
  const DeviceLevels* levels = nullptr;
  int32_t room = 0;

  bool operator==(const LevelsView&) const = default;
};

// The next level of every forest, from the records of its rows' lists.
void ChooseLevels(const LevelsView& levels, const ListsView& lists, cudaStream_t stream);
// Tokens, chains and masks of the rows of a pass, in its plan and work list.
void PlaceLevels(const LevelsView& levels, const StepView& step, const WorkView& work,
                 cudaStream_t stream);

}  // namespace coppice::kernels::cuda
