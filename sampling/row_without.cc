#include "sampling/row_without.h"

#include "sampling/deterministic_math.h"

namespace coppice::sampling {

RowWithout::RowWithout(const ProcessedRow& row, absl::Span<const TokenId> removed)
    : x_(row.values().begin(), row.values().end()),
      weights_((x_.size() + kRowPadding - 1) / kRowPadding * kRowPadding) {
  for (TokenId token : removed) x_[token] = kLogZero;
  sum_ = ChunkedLogSumExp(x_, weights_.data());
  log_mass_ = sum_.log - row.log_sum().log;
}

}  // namespace coppice::sampling
