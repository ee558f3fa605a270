// Sequences of one phase, by client: who takes part in turns (worker/fair_turns.h).
// Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "worker/fair_turns.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct ClientQueue {
  FairTurns::Asker asker;            // since: that of the first sequence
  std::vector<Sequence*> sequences;  // in the order given
};

// In the order of the clients' first sequences.
std::vector<ClientQueue> ByClient(absl::Span<Sequence* const> sequences);
std::vector<FairTurns::Asker> Askers(absl::Span<const ClientQueue> queues);

}  // namespace coppice::worker
