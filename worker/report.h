// The leader's report to the coordinator about a sequence. Called by the engine.
#pragma once

#include "proto/control.pb.h"
#include "worker/sequence.h"

namespace coppice::worker {

// Fills in new stable tokens and, if the decoder has finished, hypotheses and statistics. Returns
// false if there is nothing to report.
bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update);

}  // namespace coppice::worker
