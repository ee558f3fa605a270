// What one step computes: the KV copies to do first, the rows of all requests (prefill chunks,
// forests, plain beams), and what the decisions need of each row afterwards. Flat arrays. The
// leader builds a plan (model/kv/step_builder.h) and sends it unchanged to its ranks
// (proto/plan.proto). Every rank runs the same plan (model/model_runner.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/types.h"

namespace coppice {

inline constexpr int kBlockSize = 16;    // KV slots of a block of the pool
inline constexpr int kMostKvGroups = 8;  // of layers, at most

// Slots of pages, where blocks have pages (PageChange): a copy of a token is one for each group.
struct KvCopy {
  int32_t source = 0;       // KV slot
  int32_t destination = 0;  // KV slot
};

// In a model with windows the pool has pages instead of blocks: a page has the 16 slots of a block
// for one group of layers (kernels/backend.h, KvPoolShape). This says which page a block has from
// this plan on.
struct PageChange {
  int32_t block = 0;
  int32_t group = 0;
  int32_t page = 0;  // 0: none, because no row to come sees the block in these layers
};

// The slots, chains and tables of a plan as one group of layers has them: of pages. An entry of a
// table whose block has no page names the sink.
struct GroupSlots {
  std::vector<int32_t> slot;   // [rows]
  std::vector<int32_t> chain;  // as StepPlan::chain
  std::vector<int32_t> table;  // as StepPlan::table
};

// The rows of one request in a step: contiguous, prefill rows first.
struct Segment {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t prefix_len = 0;  // tokens of its stable prefix once this step has run
};

// What a decision needs of one row of logits. A candidate list (kTop, kGumbel) holds every token
// whose key is at least the count-th largest key minus `slack`; banned tokens are never listed. The
// key of token v is x[v] = (logit[v] + bias[v]) / temperature, in f64 with one rounding for each
// operation; kGumbel adds the noise of a slot, G(seed, TOKEN, slot, path_hash, v) of
// docs/algorithms.md 2.
struct RowNeed {
  enum class Form : uint8_t {
    kWhole,   // all logits
    kTop,     // one candidate list by x
    kGumbel,  // one candidate list for each slot, by x plus the noise of the slot
    kRaw,     // only raw_top and raw_sums: the log-probabilities of tokens that are known already
  };
  Form form = Form::kWhole;
  int32_t row = 0;  // row of the plan; needs ascend by row, at most one per row
  int32_t count = 0;
  double slack = 0;  // nats
  // Range of StepPlan::bias; entries of one token add up; -inf bans a token.
  int32_t bias_begin = 0, bias_end = 0;
  double temperature = 1;  // > 0
  bool sums = false;       // wants the log-sum-exp of x
  bool raw_sums = false;   // wants the log-sum-exp of the logits themselves
  // Wants a list of the raw_top largest logits themselves, ties included; 0 = none. kRaw: at least
  // 1, and the list also has every token of the need's bias, whose nats do not matter.
  int32_t raw_top = 0;
  // kTop: conditions on the candidate list; if one fails, the row is fetched whole. The listed
  // tokens except the last must have more than this share of the probability (needs `sums`); 0 = no
  // condition.
  double cover = 0;
  // The last listed x must be lower than the largest by more than this, nats; 0 = no condition.
  double depth = 0;
  // kGumbel: the noise.
  uint64_t seed = 0, path_hash = 0;
  uint32_t slots = 0;  // bit w: wants the candidate list of slot w
};

struct StepPlan {
  uint64_t step = 0;  // 1, 2, 3, ...: checked by every rank

  std::vector<TokenId> token;     // [rows]
  std::vector<int32_t> position;  // [rows] absolute position of the token
  std::vector<int32_t> slot;      // [rows] KV slot that the row writes
  // What row r sees, in position order: the first position[r] + 1 - n tokens of its segment's block
  // table, then the n slots chain[chain_begin[r] .. chain_begin[r + 1]). The row's own slot comes
  // last. A row without a chain is a prefill row; a row with one sees prefix_len tokens of the
  // table.
  std::vector<int32_t> chain_begin = {0};  // [rows + 1]
  std::vector<int32_t> chain;              // slots
  std::vector<Segment> segments;           // cover the rows in order
  std::vector<int32_t> table_begin = {0};  // [segments + 1]
  std::vector<int32_t> table;              // block ids

  std::vector<RowNeed> needs;
  std::vector<std::pair<TokenId, double>> bias;  // nats
  std::vector<KvCopy> commits;  // done before the forward pass; sources and destinations disjoint
  // Needs of the previous step whose rows must now be sent whole. Such a plan has no rows.
  std::vector<int32_t> fetch;
  std::vector<PageChange> pages;  // since the plan before; empty where a block is its own page

  // For models that take hidden states of another model (model/model_config.h, TargetStates): [rows]
  // which of `states` is the row's, or -1. EAGLE-3: the row begins with it; -1: with that of the
  // slot before its own in its chain, which then has two slots or more. DFlash: K and V of the row
  // are made of it; -1: the row is one of a block. Empty: the model takes none. Not sent: such a
  // model has one rank.
  std::vector<int32_t> state;
  std::vector<uint16_t> states;  // [n, columns] bf16
  // [rows] The position by which q and k rotate. Rows of a block, each of which sees all the others,
  // end their chains at one `position`. Empty: as `position`. Not sent.
  std::vector<int32_t> rope_position;

  // [groups] Not sent: every rank makes them of the arrays above (plan/page_map.h). Empty: a block
  // is its own page.
  std::vector<GroupSlots> groups;

  int rows() const { return static_cast<int>(token.size()); }
  const std::vector<int32_t>& rotation() const {
    return rope_position.empty() ? position : rope_position;
  }
  const std::vector<int32_t>& slot_of(int group) const {
    return groups.empty() ? slot : groups[group].slot;
  }
  const std::vector<int32_t>& chain_of(int group) const {
    return groups.empty() ? chain : groups[group].chain;
  }
  const std::vector<int32_t>& table_of(int group) const {
    return groups.empty() ? table : groups[group].table;
  }
  int chain_length(int row) const { return chain_begin[row + 1] - chain_begin[row]; }
  // Tokens of the block table that the row sees.
  int prefix_length(int row) const { return position[row] + 1 - chain_length(row); }
};

}  // namespace coppice
