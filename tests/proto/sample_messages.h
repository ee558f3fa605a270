// Valid structs with every field set, for the conversion tests.
#pragma once

#include <cmath>
#include <limits>
#include <variant>

#include "decoding/method.h"
#include "decoding/parameter.h"
#include "plan/plan_check.h"
#include "proto/convert.h"

namespace coppice::proto {

// A value in the range of the parameter that is not its default.
inline decoding::ParameterValue OtherValue(const decoding::ParameterRow& row) {
  const decoding::ParameterValue value = row.member.get(decoding::DecodingParams());
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* seed = std::get_if<uint64_t>(&value)) return *seed + 1;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer + 1;
  const double number = std::get<double>(value);
  return row.range.Has(number + 0.125) ? number + 0.125 : number - 0.125;
}

inline decoding::DecodingParams SampleParams() {
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("dsbd");
  params.stop_ids = {2, 5};
  params.stop_strings = {"\n\n", "\xe2\x82\xac", std::string("\0", 1)};
  params.show_special_tokens = true;
  params.format_spec = {FormatSpec::Kind::kJsonSchema, "{\"enum\": [\"\xe2\x82\xac\"]}"};
  params.sampling.logit_bias = {{3, -1.5}, {9, -INFINITY}};
  params.sampling.mode = sampling::SamplingScope::kRowRaw;
  params.draft_tree = "3-2";
  params.width_schedule = {7, 3, 2};
  params.seed = 0xfedcba9876543210ull;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.scalar() && decoding::IsDefault(row, params)) row.member.put(OtherValue(row), &params);
  }
  return params;
}

// Two roots; layer 0: nodes 0 (root 0), 1 (root 1); layer 1: node 2 below node 0.
inline decoding::DraftForest SampleForest() {
  decoding::DraftForest forest;
  forest.num_roots = 2;
  forest.Add(RootId{0}, 10);
  forest.Add(RootId{1}, 11);
  forest.Add(NodeId{0}, 12);
  forest.layer_begin = {0, 2, 3};
  const double half = std::log(0.5);
  forest.proposals = {{RootId{0}, half, {{10, 20}, {half, half}}},
                      {RootId{1}, half, {{11}, {0.0}}},
                      {NodeId{0}, half, {{12, 13}, {half, half}}},
                      {NodeId{1}, half, {{14}, {0.0}}}};
  forest.draws = {NodeId{0}, NodeId{1}, NodeId{0}, NodeId{2}};
  forest.draws_begin = {0, 3, 4};
  return forest;
}

// Two stable tokens, below which root 0 ends at 7 8 9, root 1 at 7 8 and root 2 at 7.
inline decoding::DraftRequest SampleRequest() {
  decoding::DraftRequest request;
  request.session_id = 7;
  request.round = 5;
  request.width = 4;
  request.depth = 3;
  request.stable_length = 6;
  request.stable_tokens = {3, 1};
  TokenTree& tree = request.roots.tree;
  tree.num_roots = 1;
  const NodeId seven = tree.Add(RootId{0}, 7), eight = tree.Add(seven, 8);
  request.roots.ends = {tree.Add(eight, 9), eight, seven};
  request.state.root_score = {-1, -2, -3};
  request.state.root_multiplicity = {1, 2, 1};
  request.state.slot_root = {0, 1, 1, 2};
  request.state.slot_token = {-1, 3, 4, -1};
  request.state.slot_log_prob = {0, -1, -2, 0};
  request.state.known_roots = {0, 2};
  request.state.known_children = {{2, 5, -3.5, -1.5}, {0, 6, -2, -2}};
  request.state.group_beams = {{0, 0, 0.5}, {2, 1, 0}, {0, 1, 1.5}};
  request.state.layers_committed = 9;
  return request;
}

inline PlanLimits SampleLimits() {
  return {.max_rows = 16,
          .vocab_size = 100,
          .max_positions = 64,
          .blocks = 8,
          .needs_before = 2,
          .groups = 2,
          .pages = 8};
}

// Two prefill rows of one request (positions 16, 17), a root and its child of another request with
// their needs, and two commits.
inline coppice::StepPlan SamplePlan() {
  coppice::StepPlan plan;
  plan.step = 17;
  plan.token = {4, 5, 6, 7};
  plan.position = {16, 17, 20, 21};
  plan.slot = {2 * 16, 2 * 16 + 1, 5 * 16 + 3, 5 * 16 + 9};
  plan.chain = {5 * 16 + 3, 5 * 16 + 3, 5 * 16 + 9};
  plan.chain_begin = {0, 0, 0, 1, 3};
  plan.segments = {{0, 2, 18}, {2, 2, 20}};
  plan.table = {1, 2, 3, 4};
  plan.table_begin = {0, 2, 4};
  plan.pages = {{1, 0, 7}, {2, 0, 3}, {2, 1, 6}, {7, 1, 0}};
  plan.bias = {{7, 0.5}, {9, -std::numeric_limits<double>::infinity()}};
  coppice::RowNeed top;
  top.form = coppice::RowNeed::Form::kTop;
  top.row = 2;
  top.count = 8;
  top.slack = 1e-6;
  top.bias_begin = 1;
  top.bias_end = 2;
  top.temperature = 0.75;
  top.sums = top.raw_sums = true;
  top.cover = 0.9;
  top.depth = 3;
  top.raw_top = 5;
  coppice::RowNeed gumbel;
  gumbel.form = coppice::RowNeed::Form::kGumbel;
  gumbel.row = 3;
  gumbel.count = 1;
  gumbel.seed = 0xfedcba9876543210u;
  gumbel.path_hash = 0x8000000000000001u;
  gumbel.slots = 0x8000000f;
  plan.needs = {top, gumbel};
  plan.commits = {{5 * 16 + 1, 4 * 16}, {5 * 16 + 2, 4 * 16 + 1}};
  return plan;
}

}  // namespace coppice::proto
