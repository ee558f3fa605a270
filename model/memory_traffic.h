// How many bytes of weights and KV the forward passes of a model must read from memory, over all
// its ranks: the work of a memory-bound transformer, counted from the plans and the sizes of
// weights and KV in memory. A forward pass reads
//   - the matrices and gains of its layers once, whatever the number of rows, with those that join
//     states for a draft; of experts as many as its rows can choose; final norm and head if a row
//     is needed; of the embedding only the rows of its tokens;
//   - K and V of what the rows of a segment see: its block table once, as far as a row sees it, and
//     each slot of its chains once; in a layer with a window, without the positions of the table
//     that lie before the windows of all rows. The blocks with which the tables of several segments
//     begin (plan/prefix_order.h) are read once for all of them.
// A forward pass without needs ends after the K and V of the last layer, which then has no
// attention. KV copies, states, activations and repeated reads of a kernel are not counted.
// Thread-compatible: the thread of the runner owns it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "model/transformer.h"
#include "plan/prefix_order.h"
#include "plan/step_plan.h"

namespace coppice::model {

// Bytes.
struct ReadSizes {
  uint64_t layers = 0;  // weights of all layers
  // Of the weights of layers, what a step without needs leaves out: what the last layer has after its
  // K and V; all layers of a block drafter, whose context is no more than K and V.
  uint64_t last_rest = 0;
  bool only_stores = false;  // of such a drafter: a step without needs reads no K and V
  uint64_t head = 0;         // final norm and head
  uint64_t embedding_row = 0;
  uint64_t kv_token = 0;  // K and V of a token in one layer
  // Of layers with experts: how many they are, and whether the last layer is one; the experts of a
  // row and in all, and bytes of one.
  uint64_t expert_layers = 0, experts_of_row = 0, experts = 0, expert = 0;
  bool last_has_experts = false;
  std::vector<int> windows;  // [layers] as LayerParts has them
};
// The sizes on one rank.
ReadSizes SizesOf(const TransformerParts& parts);
// The sizes on all ranks together. One rank has a token's row of the embedding. Collective; equal
// on every rank.
absl::StatusOr<ReadSizes> SumOverRanks(const ReadSizes& mine, comm::Communicator* communicator);

// Bytes since the start.
struct MemoryTraffic {
  uint64_t weights = 0, kv = 0;
};

class ReadCounter {
 public:
  explicit ReadCounter(const ReadSizes& sizes) : sizes_(sizes) {}
  void Add(const StepPlan& plan);
  const MemoryTraffic& total() const { return total_; }

 private:
  // What the rows of a segment see.
  struct Seen {
    int prefix = 0;       // tokens of the table
    int shortest = 0;     // context of a row
    uint64_t chains = 0;  // slots
  };
  Seen SeenBy(const StepPlan& plan, const Segment& segment);
  // Tokens whose K and V are read in a layer with that window.
  uint64_t TokensOf(const StepPlan& plan, const PrefixOrder& order, int window);
  // A mark that no slot and no block has.
  uint32_t NextMark();

  // The tokens of a block that were counted under a mark are those from `begin` on.
  struct CountedBlock {
    uint32_t mark = 0;
    int begin = 0;
  };

  const ReadSizes sizes_;
  MemoryTraffic total_;
  std::vector<Seen> seen_by_;         // [segments] of the plan
  std::vector<uint32_t> slots_;       // [slots] the last mark under which the slot was counted
  std::vector<CountedBlock> blocks_;  // [blocks]
  uint32_t mark_ = 0;
};

}  // namespace coppice::model
