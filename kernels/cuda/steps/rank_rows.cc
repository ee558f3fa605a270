#include "kernels/cuda/steps/rank_rows.h"

#include <utility>

namespace coppice::kernels::cuda {

void RankRows::Parts::WriteRecord(int need, float* record) const {
  if (download.IsListed(need)) return download.WriteListed(*plan, need, record);
  const RowNeed& of = plan->needs[need];
  const LogitRows& logits = download.logits();
  const sampling::TokenRange tokens = {logits.first_token, logits.first_token + logits.columns};
  const auto bias =
      absl::MakeConstSpan(plan->bias).subspan(of.bias_begin, of.bias_end - of.bias_begin);
  const absl::Span<const float> row(Row(need), logits.columns);
  sampling::WriteRecord(of, {row, tokens, logits.vocab, bias}, record);
}

void RankRows::Clear() {
  selects_ = false;
  parts_.plan = nullptr;
  parts_.download.Clear();
  fetch_.reset();
  rows_.Clear();
}

absl::Status RankRows::Select(const StepPlan& plan, const LogitRows& rows) {
  selects_ = true;
  parts_.plan = &plan;
  return parts_.download.Select(plan, rows);
}

absl::Status RankRows::Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) {
  fetch_ = needs;
  return parts_.download.Fetch(needs, stream);
}

absl::Status RankRows::Serve() {
  parts_.download.Arrived();
  if (fetch_.has_value()) return rows_.Fetch(*std::exchange(fetch_, std::nullopt));
  if (!std::exchange(selects_, false)) return absl::OkStatus();
  const LogitRows& logits = parts_.download.logits();
  const absl::Status joined = rows_.Select(*parts_.plan, &parts_, logits.first_token, logits.vocab);
  parts_.plan = nullptr;
  return joined;
}

}  // namespace coppice::kernels::cuda
