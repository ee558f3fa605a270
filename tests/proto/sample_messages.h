// Valid structs with every field in use, for the conversion tests.
#pragma once

#include <cmath>
#include <variant>

#include "decoding/method.h"
#include "decoding/parameter.h"
#include "proto/convert.h"

namespace coppice {

// In the range of the row, and not its default.
inline ParameterValue OtherValue(const ParameterRow& row) {
  const ParameterValue value = row.member.get(DecodingParams());
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* seed = std::get_if<uint64_t>(&value)) return *seed + 1;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer + 1;
  const double number = std::get<double>(value);
  return row.range.Has(number + 0.125) ? number + 0.125 : number - 0.125;
}

inline DecodingParams SampleParams() {
  DecodingParams params;
  params.kind = DecodingKind::kBeamSampling;
  params.method = FindMethod("dsbd");
  params.stop_ids = {2, 5};
  params.warp.logit_bias = {{3, -1.5}, {9, -INFINITY}};
  params.warp.mode = WarpMode::kRowRaw;
  params.draft_tree = "3-2";
  params.seed = 0xfedcba9876543210ull;
  for (const ParameterRow& row : Parameters()) {
    if (row.scalar() && IsDefault(row, params)) row.member.put(OtherValue(row), &params);
  }
  return params;
}

// Two roots; layer 0: nodes 0 (root 0), 1 (root 1); layer 1: node 2 below node 0.
inline DraftForest SampleForest() {
  DraftForest forest;
  forest.num_roots = 2;
  forest.token = {10, 11, 12};
  forest.parent = {-1, -2, 0};
  forest.layer_begin = {0, 2, 3};
  const double half = std::log(0.5);
  forest.proposals = {{-1, half, {{10, 20}, {half, half}}},
                      {-2, half, {{11}, {0.0}}},
                      {0, half, {{12, 13}, {half, half}}},
                      {1, half, {{14}, {0.0}}}};
  forest.draws = {0, 1, 0, 2};
  forest.draws_begin = {0, 3, 4};
  return forest;
}

inline PlanLimits SampleLimits() {
  return {.pool_blocks = 8, .vocab_size = 100, .max_positions = 64, .max_rows = 16};
}

// Two prefill rows of table 0 (positions 16, 17), a root and its child on table 1; two commits.
inline ForwardBatch SampleBatch() {
  ForwardBatch batch;
  batch.token = {4, 5, 6, 7};
  batch.position = {16, 17, 20, 21};
  batch.slot = {2 * 16, 2 * 16 + 1, 5 * 16 + 3, 5 * 16 + 9};
  batch.row_table = {0, 0, 1, 1};
  batch.prefix_len = {17, 18, 20, 20};
  batch.chain = {5 * 16 + 3, 5 * 16 + 3, 5 * 16 + 9};
  batch.chain_begin = {0, 0, 0, 1, 3};
  batch.table = {1, 2, 3, 4};
  batch.table_begin = {0, 2, 4};
  batch.logits_rows = {2, 3};
  batch.commits = {{5 * 16 + 1, 4 * 16}, {5 * 16 + 2, 4 * 16 + 1}};
  return batch;
}

}  // namespace coppice
