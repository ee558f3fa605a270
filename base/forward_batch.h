// What one forward pass computes: ragged rows of mixed work (prefill chunks, forests, plain beams)
// as flat arrays. The leader builds it, ships it to its ranks (proto/plan.proto) and every rank
// runs the same.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace coppice {

struct KvCopy {
  int32_t source = 0;       // KV slot
  int32_t destination = 0;  // KV slot
};

struct ForwardBatch {
  std::vector<TokenId> token;     // [rows]
  std::vector<int32_t> position;  // [rows] absolute position of the token
  std::vector<int32_t> slot;      // [rows] KV slot that the row writes
  // What row r sees, in position order: the first prefix_len[r] tokens of block table row_table[r],
  // then the slots chain[chain_begin[r] .. chain_begin[r+1]). The row's own slot comes last. Length
  // = position + 1.
  std::vector<int32_t> row_table;    // [rows] index of a table
  std::vector<int32_t> prefix_len;   // [rows]
  std::vector<int32_t> chain_begin;  // [rows + 1]
  std::vector<int32_t> chain;        // slots
  std::vector<int32_t> table_begin;  // [tables + 1]
  std::vector<int32_t> table;        // block ids
  std::vector<int32_t> logits_rows;  // rows whose logits are wanted, ascending
  std::vector<KvCopy> commits;       // done before the pass; sources and destinations disjoint

  int rows() const { return static_cast<int>(token.size()); }
};

}  // namespace coppice
