#include "worker/client_queues.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace coppice::worker {

std::vector<ClientQueue> ByClient(absl::Span<Sequence* const> sequences) {
  std::vector<ClientQueue> queues;
  absl::flat_hash_map<absl::string_view, size_t> place;
  for (Sequence* sequence : sequences) {
    const auto [at, is_new] = place.try_emplace(sequence->client, queues.size());
    if (is_new) {
      queues.push_back({{sequence->client, sequence->client_weight, sequence->phase_order}, {}});
    }
    queues[at->second].sequences.push_back(sequence);
  }
  return queues;
}

std::vector<FairTurns::Asker> Askers(absl::Span<const ClientQueue> queues) {
  std::vector<FairTurns::Asker> askers;
  askers.reserve(queues.size());
  for (const ClientQueue& queue : queues) askers.push_back(queue.asker);
  return askers;
}

}  // namespace coppice::worker
