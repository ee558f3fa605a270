#include <algorithm>
#include <utility>

#include "base/status.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice {

using wire::Bad;
using wire::BadEntry;
using wire::CheckEntries;
using wire::CheckLength;
using wire::CheckOffsets;
using wire::Fill;
using wire::ToVector;

proto::StepPlan BatchToMessage(uint64_t step, const ForwardBatch& batch) {
  proto::StepPlan message;
  message.set_step(step);
  Fill(batch.token, message.mutable_token());
  Fill(batch.position, message.mutable_position());
  Fill(batch.slot, message.mutable_slot());
  Fill(batch.row_table, message.mutable_row_table());
  Fill(batch.prefix_len, message.mutable_prefix_len());
  Fill(batch.chain_begin, message.mutable_chain_begin());
  Fill(batch.chain, message.mutable_chain());
  Fill(batch.table_begin, message.mutable_table_begin());
  Fill(batch.table, message.mutable_table());
  Fill(batch.logits_rows, message.mutable_logits_rows());
  for (const KvCopy& copy : batch.commits) {
    message.add_commit_source(copy.source);
    message.add_commit_destination(copy.destination);
  }
  return message;
}

namespace {

// Position by position: what the row sees must be what it says, and end with the slot that it
// writes.
absl::Status CheckRow(const ForwardBatch& batch, const PlanLimits& limits, int row) {
  const int table = batch.row_table[row];
  const int64_t prefix = batch.prefix_len[row];
  const int32_t chain_end = batch.chain_begin[row + 1];
  const int64_t chain = chain_end - batch.chain_begin[row];
  const int64_t held = batch.table_begin[table + 1] - batch.table_begin[table];
  if (prefix > held * limits.block_size) {
    return BadEntry("prefix_len", row, absl::StrCat(prefix, " tokens in ", held, " blocks"));
  }
  if (prefix + chain != int64_t{batch.position[row]} + 1) {
    return BadEntry("position", row,
                    absl::StrCat(batch.position[row], " after ", prefix, " + ", chain,
                                 " tokens, itself included"));
  }
  int32_t last;
  if (chain > 0) {
    last = batch.chain[chain_end - 1];
  } else {
    const int64_t at = prefix - 1;
    last = batch.table[batch.table_begin[table] + at / limits.block_size] * limits.block_size +
           static_cast<int32_t>(at % limits.block_size);
  }
  if (batch.slot[row] == last) return absl::OkStatus();
  return BadEntry("slot", row, absl::StrCat(batch.slot[row], ", but its context ends in ", last));
}

absl::Status CheckUnique(absl::string_view field, std::vector<int32_t> slots) {
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice == slots.end()) return absl::OkStatus();
  return Bad(field, absl::StrCat("slot ", *twice, " is written twice"));
}

absl::Status CheckCommits(const ForwardBatch& batch) {
  if (batch.commits.empty()) return absl::OkStatus();
  std::vector<int32_t> sources, destinations;
  for (const KvCopy& copy : batch.commits) {
    sources.push_back(copy.source);
    destinations.push_back(copy.destination);
  }
  std::sort(destinations.begin(), destinations.end());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (std::binary_search(destinations.begin(), destinations.end(), sources[i])) {
      return BadEntry("commit_source", i, absl::StrCat(sources[i], " is a destination too"));
    }
  }
  return CheckUnique("commit_destination", std::move(destinations));
}

absl::Status CheckPlanArrays(const proto::StepPlan& plan, const PlanLimits& limits) {
  const size_t rows = plan.token_size();
  const int64_t slots = limits.pool_blocks * limits.block_size;
  if (rows > static_cast<size_t>(limits.max_rows)) {
    return Bad("token", absl::StrCat(rows, " rows, at most ", limits.max_rows));
  }
  COPPICE_RETURN_IF_ERROR(CheckEntries("token", plan.token(), 0, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLength("position", plan.position_size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("position", plan.position(), 0, limits.max_positions));
  COPPICE_RETURN_IF_ERROR(CheckLength("slot", plan.slot_size(), rows));
  COPPICE_RETURN_IF_ERROR(CheckEntries("slot", plan.slot(), 0, slots));
  COPPICE_RETURN_IF_ERROR(CheckLength("row_table", plan.row_table_size(), rows));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("row_table", plan.row_table(), 0, int64_t{plan.table_begin_size()} - 1));
  COPPICE_RETURN_IF_ERROR(CheckLength("prefix_len", plan.prefix_len_size(), rows));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("prefix_len", plan.prefix_len(), 0, int64_t{limits.max_positions} + 1));
  COPPICE_RETURN_IF_ERROR(CheckLength("chain_begin", plan.chain_begin_size(), rows + 1));
  COPPICE_RETURN_IF_ERROR(CheckOffsets("chain_begin", plan.chain_begin(), plan.chain_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("chain", plan.chain(), 0, slots));
  COPPICE_RETURN_IF_ERROR(CheckOffsets("table_begin", plan.table_begin(), plan.table_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("table", plan.table(), 0, limits.pool_blocks));
  COPPICE_RETURN_IF_ERROR(CheckEntries("logits_rows", plan.logits_rows(), 0, rows));
  for (int i = 1; i < plan.logits_rows_size(); ++i) {
    if (plan.logits_rows(i) <= plan.logits_rows(i - 1)) {
      return BadEntry("logits_rows", i, "does not ascend");
    }
  }
  COPPICE_RETURN_IF_ERROR(
      CheckLength("commit_destination", plan.commit_destination_size(), plan.commit_source_size()));
  COPPICE_RETURN_IF_ERROR(CheckEntries("commit_source", plan.commit_source(), 0, slots));
  return CheckEntries("commit_destination", plan.commit_destination(), 0, slots);
}

}  // namespace

absl::StatusOr<ForwardBatch> BatchFromMessage(const proto::StepPlan& message,
                                              const PlanLimits& limits) {
  COPPICE_RETURN_IF_ERROR(CheckPlanArrays(message, limits));
  ForwardBatch batch;
  batch.token = ToVector(message.token());
  batch.position = ToVector(message.position());
  batch.slot = ToVector(message.slot());
  batch.row_table = ToVector(message.row_table());
  batch.prefix_len = ToVector(message.prefix_len());
  batch.chain_begin = ToVector(message.chain_begin());
  batch.chain = ToVector(message.chain());
  batch.table_begin = ToVector(message.table_begin());
  batch.table = ToVector(message.table());
  batch.logits_rows = ToVector(message.logits_rows());
  for (int i = 0; i < message.commit_source_size(); ++i) {
    batch.commits.push_back({message.commit_source(i), message.commit_destination(i)});
  }
  for (int row = 0; row < batch.rows(); ++row) {
    COPPICE_RETURN_IF_ERROR(CheckRow(batch, limits, row));
  }
  COPPICE_RETURN_IF_ERROR(CheckUnique("slot", batch.slot));
  COPPICE_RETURN_IF_ERROR(CheckCommits(batch));
  return batch;
}

}  // namespace coppice
