// What the leader tells the coordinator of a sequence: statistics round by round, and the final
// figures.
#pragma once

#include "decoding/forest.h"
#include "proto/control.pb.h"
#include "worker/sequence.h"

namespace coppice {

// Adds one verified round (after the first layer, which prefill decides) to the sequence and to the
// node's counters.
void RecordRound(const RoundStats& round, bool drafted, int depth, int beam_width,
                 SequenceStatistics* stats, proto::NodeCounters* counters);

// New stable tokens and, when the decoder has finished, hypotheses and statistics. False: there is
// nothing to tell.
bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update);

}  // namespace coppice
