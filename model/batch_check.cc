#include "model/batch_check.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/backend.h"

namespace coppice {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("forward batch: ", what));
}

absl::Status BadRow(int row, absl::string_view what) {
  return Bad(absl::StrCat("row ", row, ": ", what));
}

// offsets [n + 1], from 0 to `size`, never falling.
bool AreOffsets(const std::vector<int32_t>& offsets, size_t size) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(size))
    return false;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return false;
  }
  return true;
}

absl::Status CheckSizes(const ForwardBatch& batch, const BatchLimits& limits) {
  const size_t rows = batch.token.size();
  if (rows > static_cast<size_t>(limits.max_rows)) {
    return Bad(absl::StrCat(rows, " rows, at most ", limits.max_rows, " (max_rows)"));
  }
  if (batch.position.size() != rows || batch.slot.size() != rows ||
      batch.row_table.size() != rows || batch.prefix_len.size() != rows ||
      batch.chain_begin.size() != rows + 1) {
    return Bad("token, position, slot, row_table, prefix_len, chain_begin differ in rows");
  }
  if (!AreOffsets(batch.chain_begin, batch.chain.size()))
    return Bad("chain_begin does not partition chain");
  if (!AreOffsets(batch.table_begin, batch.table.size()))
    return Bad("table_begin does not partition table");
  return absl::OkStatus();
}

absl::Status CheckRow(const ForwardBatch& batch, const BatchLimits& limits, int row) {
  const int64_t slots = limits.blocks * kBlockSize;
  const int32_t position = batch.position[row], prefix = batch.prefix_len[row],
                table = batch.row_table[row];
  const int64_t chain = batch.chain_begin[row + 1] - batch.chain_begin[row];
  if (batch.token[row] < 0 || batch.token[row] >= limits.vocab_size)
    return BadRow(row, "token out of range");
  if (position < 0 || position >= limits.max_positions) {
    return BadRow(row,
                  absl::StrCat("position ", position, ", the model has ", limits.max_positions));
  }
  if (batch.slot[row] < 0 || batch.slot[row] >= slots) return BadRow(row, "slot out of range");
  if (prefix < 0 || prefix + chain != position + 1)
    return BadRow(row, "context length differs from position + 1");
  if (table < 0 || table + 1 >= static_cast<int64_t>(batch.table_begin.size())) {
    return BadRow(row, "row_table out of range");
  }
  const int64_t held = batch.table_begin[table + 1] - batch.table_begin[table];
  if (prefix > held * kBlockSize) return BadRow(row, "prefix_len exceeds its block table");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const ForwardBatch& batch, const BatchLimits& limits) {
  if (batch.rows() > 0) {
    COPPICE_RETURN_IF_ERROR(CheckSizes(batch, limits));
    for (int row = 0; row < batch.rows(); ++row)
      COPPICE_RETURN_IF_ERROR(CheckRow(batch, limits, row));
    for (const int32_t slot : batch.chain) {
      if (slot < 0 || slot >= limits.blocks * kBlockSize) return Bad("chain slot out of range");
    }
    for (const int32_t block : batch.table) {
      if (block < 0 || block >= limits.blocks) return Bad("table block out of range");
    }
  }
  int64_t before = -1;
  for (const int32_t row : batch.logits_rows) {
    if (row <= before || row >= batch.rows())
      return Bad("logits_rows not ascending rows of the batch");
    before = row;
  }
  for (const KvCopy& copy : batch.commits) {
    for (const int32_t slot : {copy.source, copy.destination}) {
      if (slot < 0 || slot >= limits.blocks * kBlockSize) return Bad("commit slot out of range");
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice
