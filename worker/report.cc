#include "worker/report.h"

#include <algorithm>

#include "proto/convert.h"

namespace coppice::worker {
bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update) {
  if (sequence->quiet && sequence->stable_sent > 0 && !sequence->decoder->finished()) return false;
  update->set_sequence_id(sequence->id);
  const std::vector<TokenId> stable = sequence->decoder->StablePrefix();
  for (size_t i = sequence->stable_sent; i < stable.size(); ++i)
    update->add_stable_tokens(stable[i]);
  sequence->stable_sent = std::max(sequence->stable_sent, stable.size());
  if (!sequence->decoder->finished()) return update->stable_tokens_size() > 0;
  update->set_finished(true);
  for (const decoding::Hypothesis& hypothesis : sequence->decoder->Result()) {
    *update->add_hypotheses() = proto::HypothesisToMessage(hypothesis);
  }
  *update->mutable_stats() = proto::StatsToMessage(sequence->stats);
  return true;
}

}  // namespace coppice::worker
