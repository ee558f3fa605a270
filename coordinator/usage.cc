#include "coordinator/usage.h"

#include <algorithm>

namespace coppice {

void UsageSum::Add(const proto::SequenceStats& stats, bool first_of_prompt) {
  usage_.method = stats.method();
  usage_.lossless = stats.lossless();
  usage_.rounds += stats.rounds();
  usage_.plain_rounds += stats.plain_rounds();
  usage_.target_passes += stats.target_passes();
  usage_.layers += stats.layers();
  usage_.beam_tokens += stats.beam_tokens();
  usage_.drafted_nodes += stats.drafted_nodes();
  usage_.accepted_nodes += stats.accepted_nodes();
  if (usage_.accepted_by_layer.size() < stats.accepted_by_layer_size()) {
    usage_.accepted_by_layer.resize(stats.accepted_by_layer_size());
  }
  for (int i = 0; i < stats.accepted_by_layer_size(); ++i)
    usage_.accepted_by_layer[i] += stats.accepted_by_layer(i);
  if (first_of_prompt) usage_.cached_tokens += stats.cached_tokens();

  const double weight =
      stats.rounds() > stats.plain_rounds() ? stats.rounds() - stats.plain_rounds() : 0;
  drafted_rounds_ += weight;
  width_sum_ += weight * stats.draft_width();
  depth_sum_ += weight * stats.draft_depth();
  accepted_sum_ += weight * stats.accepted_width();
  if (stats.overlap() >= 0) {
    overlap_sum_ += weight * stats.overlap();
    overlap_weight_ += weight;
  }
  timings_.queue_ms = std::max(timings_.queue_ms, stats.queue_ms());
  timings_.prefill_ms += stats.prefill_ms();
  timings_.draft_ms += stats.draft_ms();
  timings_.draft_wait_ms += stats.draft_wait_ms();
  timings_.verify_ms += stats.verify_ms();
}

Usage UsageSum::usage() const {
  Usage usage = usage_;
  if (drafted_rounds_ > 0) {
    usage.draft_width = width_sum_ / drafted_rounds_;
    usage.draft_depth = depth_sum_ / drafted_rounds_;
    usage.accepted_width = accepted_sum_ / drafted_rounds_;
  }
  if (overlap_weight_ > 0) usage.overlap = overlap_sum_ / overlap_weight_;
  return usage;
}

}  // namespace coppice
