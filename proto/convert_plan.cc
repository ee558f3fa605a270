#include <utility>

#include "base/status.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice::proto {
namespace {

constexpr uint32_t kForms = 4;

void FillNeed(const coppice::RowNeed& need, proto::RowNeed* out) {
  out->set_form(static_cast<uint32_t>(need.form));
  out->set_row(need.row);
  out->set_count(need.count);
  out->set_slack(need.slack);
  out->set_bias_begin(need.bias_begin);
  out->set_bias_end(need.bias_end);
  out->set_temperature(need.temperature);
  out->set_sums(need.sums);
  out->set_raw_sums(need.raw_sums);
  out->set_cover(need.cover);
  out->set_depth(need.depth);
  out->set_seed(need.seed);
  out->set_path_hash(need.path_hash);
  out->set_slots(need.slots);
  out->set_raw_top(need.raw_top);
}

coppice::RowNeed NeedFrom(const proto::RowNeed& in) {
  coppice::RowNeed need;
  need.form = static_cast<coppice::RowNeed::Form>(in.form());
  need.row = in.row();
  need.count = in.count();
  need.slack = in.slack();
  need.bias_begin = in.bias_begin();
  need.bias_end = in.bias_end();
  need.temperature = in.temperature();
  need.sums = in.sums();
  need.raw_sums = in.raw_sums();
  need.cover = in.cover();
  need.depth = in.depth();
  need.seed = in.seed();
  need.path_hash = in.path_hash();
  need.slots = in.slots();
  need.raw_top = in.raw_top();
  return need;
}

}  // namespace

proto::StepPlan PlanToMessage(const coppice::StepPlan& plan) {
  proto::StepPlan message;
  message.set_step(plan.step);
  wire::Fill(plan.token, message.mutable_token());
  wire::Fill(plan.position, message.mutable_position());
  wire::Fill(plan.slot, message.mutable_slot());
  wire::Fill(plan.chain_begin, message.mutable_chain_begin());
  wire::Fill(plan.chain, message.mutable_chain());
  wire::Fill(plan.table_begin, message.mutable_table_begin());
  wire::Fill(plan.table, message.mutable_table());
  for (const Segment& segment : plan.segments) {
    message.add_segment_rows(segment.rows);
    message.add_segment_prefix_len(segment.prefix_len);
  }
  for (const coppice::RowNeed& need : plan.needs) FillNeed(need, message.add_needs());
  for (const auto& [token, bias] : plan.bias) {
    message.add_bias_token(token);
    message.add_bias(bias);
  }
  for (const KvCopy& copy : plan.commits) {
    message.add_commit_source(copy.source);
    message.add_commit_destination(copy.destination);
  }
  wire::Fill(plan.fetch, message.mutable_fetch());
  for (const PageChange& change : plan.pages) {
    message.add_page_block(change.block);
    message.add_page_group(change.group);
    message.add_page(change.page);
  }
  return message;
}

absl::StatusOr<coppice::StepPlan> PlanFromMessage(const proto::StepPlan& message) {
  COPPICE_RETURN_IF_ERROR(wire::CheckLength("segment_prefix_len", message.segment_prefix_len_size(),
                                            message.segment_rows_size()));
  COPPICE_RETURN_IF_ERROR(
      wire::CheckLength("bias", message.bias_size(), message.bias_token_size()));
  COPPICE_RETURN_IF_ERROR(wire::CheckLength("commit_destination", message.commit_destination_size(),
                                            message.commit_source_size()));
  COPPICE_RETURN_IF_ERROR(
      wire::CheckLength("page_group", message.page_group_size(), message.page_block_size()));
  COPPICE_RETURN_IF_ERROR(
      wire::CheckLength("page", message.page_size(), message.page_block_size()));
  coppice::StepPlan plan;
  plan.step = message.step();
  plan.token = wire::ToVector(message.token());
  plan.position = wire::ToVector(message.position());
  plan.slot = wire::ToVector(message.slot());
  plan.chain_begin = wire::ToVector(message.chain_begin());
  plan.chain = wire::ToVector(message.chain());
  plan.table_begin = wire::ToVector(message.table_begin());
  plan.table = wire::ToVector(message.table());
  int64_t row = 0;
  for (int i = 0; i < message.segment_rows_size(); ++i) {
    plan.segments.push_back(
        {static_cast<int32_t>(row), message.segment_rows(i), message.segment_prefix_len(i)});
    row += message.segment_rows(i);
  }
  for (int i = 0; i < message.needs_size(); ++i) {
    if (message.needs(i).form() >= kForms) {
      return wire::BadEntry("needs", i, absl::StrCat("form ", message.needs(i).form()));
    }
    plan.needs.push_back(NeedFrom(message.needs(i)));
  }
  for (int i = 0; i < message.bias_size(); ++i) {
    plan.bias.emplace_back(message.bias_token(i), message.bias(i));
  }
  for (int i = 0; i < message.commit_source_size(); ++i) {
    plan.commits.push_back({message.commit_source(i), message.commit_destination(i)});
  }
  plan.fetch = wire::ToVector(message.fetch());
  for (int i = 0; i < message.page_block_size(); ++i) {
    plan.pages.push_back({message.page_block(i), message.page_group(i), message.page(i)});
  }
  return plan;
}

}  // namespace coppice::proto
