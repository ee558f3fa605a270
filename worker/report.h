// The leader's report to the coordinator about a sequence. Called by the engine.
#pragma once

#include "absl/types/span.h"
#include "proto/control.pb.h"
#include "worker/sequence.h"

namespace coppice::worker {

// An update with the scores of the prompt's next tokens, when some have come since the last one.
void FillPromptScores(absl::Span<const TokenScore> scores, Sequence* sequence,
                      proto::SequenceUpdate* update);
// The end of a sequence that only scores its prompt.
void FillScored(Sequence* sequence, proto::SequenceUpdate* update);
// Fills in new stable tokens and, if the decoder has finished, hypotheses and statistics. Returns
// false if there is nothing to report: neither these nor, of a stream, rounds to show.
bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update);

}  // namespace coppice::worker
