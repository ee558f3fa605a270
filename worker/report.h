// What the leader tells the coordinator about a sequence. Called by the engine.
#pragma once

#include "proto/control.pb.h"
#include "worker/sequence.h"

namespace coppice::worker {

// New stable tokens and, when the decoder has finished, hypotheses and statistics. False: there is
// nothing to tell.
bool FillUpdate(Sequence* sequence, proto::SequenceUpdate* update);

}  // namespace coppice::worker
