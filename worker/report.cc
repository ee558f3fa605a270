#include "worker/report.h"

#include <algorithm>

#include "decoding/method.h"
#include "proto/convert.h"

namespace coppice {
namespace {

double Milliseconds(double begin_s, double end_s) { return std::max(0.0, end_s - begin_s) * 1e3; }

void FillStatistics(const Sequence& sequence, proto::SequenceStats* out) {
  const SequenceStatistics& stats = sequence.stats;
  out->set_method(std::string(MethodName(sequence.params)));
  out->set_lossless(sequence.lossless);
  out->set_rounds(stats.rounds);
  out->set_plain_rounds(stats.plain_rounds);
  out->set_target_passes(stats.target_passes);
  out->set_layers(stats.layers);
  out->set_beam_tokens(stats.beam_tokens);
  out->set_drafted_nodes(stats.drafted_nodes);
  out->set_accepted_nodes(stats.accepted_nodes);
  out->mutable_accepted_by_layer()->Assign(stats.accepted_by_layer.begin(),
                                           stats.accepted_by_layer.end());
  const uint64_t layers = stats.drafted_layers_with_acceptance;
  out->set_accepted_width(layers == 0 ? 0 : static_cast<double>(stats.accepted_nodes) / layers);
  const uint32_t drafted_rounds = stats.rounds - stats.plain_rounds;
  if (drafted_rounds > 0) {
    out->set_draft_width(stats.draft_width_sum / drafted_rounds);
    out->set_draft_depth(stats.draft_depth_sum / drafted_rounds);
  }
  out->set_overlap(stats.overlap_layers == 0 ? -1 : stats.overlap_sum / stats.overlap_layers);
  out->set_cached_tokens(stats.cached_tokens);
  out->set_queue_ms(Milliseconds(stats.arrival_s, stats.admitted_s));
  out->set_prefill_ms(Milliseconds(stats.admitted_s, stats.prefill_end_s));
  out->set_first_token_ms(Milliseconds(stats.arrival_s, stats.first_token_s));
  out->set_draft_ms(stats.draft_ms);
  out->set_draft_wait_ms(stats.draft_wait_ms);
  out->set_verify_ms(stats.verify_ms);
  out->set_total_ms(Milliseconds(stats.arrival_s, stats.end_s));
}

void CountByLayer(const std::vector<int>& accepted, std::vector<uint64_t>* sums,
                  proto::NodeCounters* counters) {
  if (sums->size() < accepted.size()) sums->resize(accepted.size());
  for (size_t l = 0; l < accepted.size(); ++l) {
    (*sums)[l] += accepted[l];
    while (counters->accepted_by_layer_size() <= static_cast<int>(l))
      counters->add_accepted_by_layer(0);
    counters->set_accepted_by_layer(l, counters->accepted_by_layer(l) + accepted[l]);
  }
}

}  // namespace

void RecordRound(const RoundStats& round, bool drafted, int depth, int beam_width,
                 SequenceStatistics* stats, proto::NodeCounters* counters) {
  ++stats->rounds;
  ++stats->target_passes;
  stats->layers += round.layers;
  stats->beam_tokens += static_cast<uint64_t>(round.layers) * beam_width;
  counters->set_target_passes(counters->target_passes() + 1);
  counters->set_layers(counters->layers() + round.layers);
  counters->set_beam_tokens(counters->beam_tokens() +
                            static_cast<uint64_t>(round.layers) * beam_width);
  if (!drafted) {
    ++stats->plain_rounds;
    return;
  }
  stats->drafted_nodes += round.drafted_nodes;
  stats->accepted_nodes += round.accepted_nodes;
  stats->drafted_layers_with_acceptance += std::count_if(
      round.accepted_by_layer.begin(), round.accepted_by_layer.end(), [](int n) { return n > 0; });
  stats->draft_depth_sum += depth;
  stats->draft_width_sum += depth == 0 ? 0 : static_cast<double>(round.drafted_nodes) / depth;
  stats->overlap_sum += round.overlap_sum;
  stats->overlap_layers += round.overlap_layers;
  CountByLayer(round.accepted_by_layer, &stats->accepted_by_layer, counters);
  counters->set_forests(counters->forests() + 1);
  counters->set_drafted_nodes(counters->drafted_nodes() + round.drafted_nodes);
  counters->set_accepted_nodes(counters->accepted_nodes() + round.accepted_nodes);
}

bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update) {
  if (sequence->quiet && sequence->stable_sent > 0 && !sequence->decoder->finished()) return false;
  update->set_sequence_id(sequence->id);
  const std::vector<TokenId> stable = sequence->decoder->StablePrefix();
  for (size_t i = sequence->stable_sent; i < stable.size(); ++i)
    update->add_stable_tokens(stable[i]);
  sequence->stable_sent = std::max(sequence->stable_sent, stable.size());
  if (!sequence->decoder->finished()) return update->stable_tokens_size() > 0;
  update->set_finished(true);
  for (const Hypothesis& hypothesis : sequence->decoder->Result()) {
    *update->add_hypotheses() = HypothesisToMessage(hypothesis);
  }
  FillStatistics(*sequence, update->mutable_stats());
  return true;
}

}  // namespace coppice
