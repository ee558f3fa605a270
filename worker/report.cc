#include "worker/report.h"

#include <algorithm>

#include "proto/convert.h"

namespace coppice::worker {
namespace {

constexpr int kQuietLayers = 32;  // between two reports of a sequence that is not streamed

template <class Messages>
void AddScores(absl::Span<const TokenScore> scores, Messages* messages) {
  for (const TokenScore& score : scores) *messages->Add() = proto::ScoreToMessage(score);
}

void Name(Sequence* sequence, proto::SequenceUpdate* update) {
  update->set_sequence_id(sequence->id);
  update->set_index(sequence->updates++);
}

}  // namespace

void FillPromptScores(absl::Span<const TokenScore> scores, Sequence* sequence,
                      proto::SequenceUpdate* update) {
  Name(sequence, update);
  AddScores(scores, update->mutable_prompt_scores());
}

void FillScored(Sequence* sequence, proto::SequenceUpdate* update) {
  Name(sequence, update);
  update->set_finished(true);
  *update->add_hypotheses() = proto::HypothesisToMessage(decoding::Hypothesis());
  *update->mutable_stats() = proto::StatsToMessage(sequence->stats);
}

bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update) {
  const int layers = sequence->decoder->layers_committed();
  if (sequence->quiet && sequence->stable_sent > 0 && !sequence->decoder->finished() &&
      layers - sequence->layers_reported < kQuietLayers)
    return false;
  sequence->layers_reported = layers;
  const std::vector<TokenId> stable = sequence->decoder->StablePrefix();
  for (size_t i = sequence->stable_sent; i < stable.size(); ++i)
    update->add_stable_tokens(stable[i]);
  const decoding::PathTree& paths = sequence->decoder->paths();
  const TokenScores& scores = sequence->scores;
  if (scores.top && stable.size() > sequence->stable_sent) {
    AddScores(scores.Of(paths, stable, sequence->stable_sent), update->mutable_stable_scores());
  }
  sequence->stable_sent = std::max(sequence->stable_sent, stable.size());
  // Who watches a stream sees every round.
  const bool shows = !sequence->quiet && !sequence->round_times.empty() &&
                     sequence->round_times.back().has_forest();
  if (!sequence->decoder->finished() && update->stable_tokens_size() == 0 && !shows) return false;
  Name(sequence, update);
  if (!sequence->decoder->finished()) return true;
  update->set_finished(true);
  for (const decoding::Hypothesis& hypothesis : sequence->decoder->Result()) {
    proto::Hypothesis* message = update->add_hypotheses();
    *message = proto::HypothesisToMessage(hypothesis);
    if (scores.top) AddScores(scores.Of(paths, hypothesis.tokens), message->mutable_scores());
  }
  *update->mutable_stats() = proto::StatsToMessage(sequence->stats);
  return true;
}

}  // namespace coppice::worker
