// A row of logits as a candidate list, which holds only what a RowNeed needs. Made by the backends
// (sampling/candidate_list.h), read by decoding (ProcessedRow, DraftRow).
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace coppice {

// Every log-sum-exp adds the vocabulary in this many chunks. Of n tokens, chunk c is
// [c n / 16, (c + 1) n / 16). Shards of tensor-parallel ranks end at chunk borders, so the sums are
// the same for any number of ranks.
inline constexpr int kLseChunks = 16;

// For each chunk, the largest x and the sum of exp(x - largest). An empty chunk has (-inf, 0).
struct ChunkSums {
  double max[kLseChunks];
  double sum[kLseChunks];
};

struct TokenList {
  std::vector<TokenId> tokens;  // ascending
  std::vector<float> logits;    // raw
};

struct CandidateRow {
  std::vector<TokenList> lists;  // kTop: one; kGumbel: one for each wanted slot, ascending
  uint32_t slots = 0;            // kGumbel: RowNeed::slots
  ChunkSums sums;                // present if wanted
  ChunkSums raw_sums;
  TokenList raw;          // the largest logits, at least RowNeed::raw_top; where they were wanted
  bool overflow = false;  // more tokens are within the slack than a candidate list holds
  // The lowest token whose logit is NaN or +inf; -1 = none.
  TokenId bad_token = -1;
  float bad_logit = 0;

  const TokenList& OfSlot(uint32_t slot) const {
    return lists[__builtin_popcount(slots & ((uint32_t{1} << slot) - 1))];
  }
};

}  // namespace coppice
