#include "base/decoding_stats.h"

#include <algorithm>

namespace coppice {
namespace {

std::optional<double> Mean(double sum, int64_t count) {
  if (count <= 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

void DecodingStats::Merge(const DecodingStats& other) {
  if (other.method != "none") method = other.method;
  lossless = lossless && other.lossless;
  rounds += other.rounds;
  plain_rounds += other.plain_rounds;
  suffix_rounds += other.suffix_rounds;
  target_passes += other.target_passes;
  layers += other.layers;
  beam_tokens += other.beam_tokens;
  drafted_nodes += other.drafted_nodes;
  accepted_nodes += other.accepted_nodes;
  if (accepted_by_layer.size() < other.accepted_by_layer.size())
    accepted_by_layer.resize(other.accepted_by_layer.size());
  for (size_t layer = 0; layer < other.accepted_by_layer.size(); ++layer)
    accepted_by_layer[layer] += other.accepted_by_layer[layer];
  accepting_layers += other.accepting_layers;
  draft_width_sum += other.draft_width_sum;
  draft_depth_sum += other.draft_depth_sum;
  overlap_sum += other.overlap_sum;
  overlap_layers += other.overlap_layers;
  cached_tokens += other.cached_tokens;
  preemptions += other.preemptions;
  queue_ms = std::max(queue_ms, other.queue_ms);
  prefill_ms += other.prefill_ms;
  draft_ms += other.draft_ms;
  draft_wait_ms += other.draft_wait_ms;
  verify_ms += other.verify_ms;
}

std::optional<double> DecodingStats::block_efficiency() const {
  return Mean(static_cast<double>(layers), target_passes);
}

std::optional<double> DecodingStats::accepted_width() const {
  if (drafted_rounds() <= 0) return std::nullopt;
  return Mean(static_cast<double>(accepted_nodes), accepting_layers).value_or(0);
}

std::optional<double> DecodingStats::draft_width() const {
  return Mean(draft_width_sum, drafted_rounds());
}

std::optional<double> DecodingStats::draft_depth() const {
  return Mean(draft_depth_sum, drafted_rounds());
}

std::optional<double> DecodingStats::overlap() const { return Mean(overlap_sum, overlap_layers); }

}  // namespace coppice
