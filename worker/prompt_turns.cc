#include "worker/prompt_turns.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kernels/backend.h"
#include "worker/client_queues.h"

namespace coppice::worker {
namespace {

// A client's prompts, by age and by missing tokens.
class Queue {
 public:
  void Add(WaitingPrompt prompt) {
    const uint64_t age = prompt.sequence->phase_order;
    by_age_.emplace(age, prompt);
    by_left_.insert({prompt.left, age});
  }
  bool empty() const { return by_age_.empty(); }
  bool single() const { return by_age_.size() == 1; }
  const WaitingPrompt& oldest() const { return by_age_.begin()->second; }
  const WaitingPrompt& shortest() const { return by_age_.at(by_left_.begin()->second); }
  void Update(const Sequence& sequence, const PromptTurns::Read& read) {
    const auto place = by_age_.find(sequence.phase_order);
    by_left_.erase({place->second.left, place->first});
    if (!read.goes_on) {
      by_age_.erase(place);
      return;
    }
    place->second.left = read.left;
    by_left_.insert({read.left, place->first});
  }

 private:
  std::map<uint64_t, WaitingPrompt> by_age_;
  std::set<std::pair<int, uint64_t>> by_left_;
};

std::vector<Queue> MakeQueues(absl::Span<const WaitingPrompt> prompts,
                              std::vector<FairTurns::Asker>* askers) {
  std::vector<Sequence*> sequences;
  absl::flat_hash_map<const Sequence*, int> left;
  for (const WaitingPrompt& prompt : prompts) {
    sequences.push_back(prompt.sequence);
    left[prompt.sequence] = prompt.left;
  }
  const std::vector<ClientQueue> clients = ByClient(sequences);
  *askers = Askers(clients);
  std::vector<Queue> queues(clients.size());
  for (size_t i = 0; i < clients.size(); ++i) {
    for (Sequence* sequence : clients[i].sequences) queues[i].Add({sequence, left.at(sequence)});
  }
  return queues;
}

}  // namespace

void PromptTurns::Run(absl::Span<const WaitingPrompt> prompts, int tokens, int rows,
                      ReadPrompt read) {
  std::vector<FairTurns::Asker> askers;
  std::vector<Queue> queues = MakeQueues(prompts, &askers);
  const int clients = std::max(1, static_cast<int>(queues.size()));
  const int turn = std::max(kBlockSize, (std::min(tokens, rows) + clients - 1) / clients);
  turns_.Begin(std::move(askers));
  const auto give = [&](Queue* queue, Sequence* sequence, int most) {
    const Read got = read(sequence, most, rows);
    queue->Update(*sequence, got);
    tokens -= got.tokens;
    rows -= got.rows;
    return got;
  };
  while (const std::optional<int> next = rows > 0 ? turns_.First() : std::nullopt) {
    Queue* queue = &queues[*next];
    if (tokens == 0 && queue->shortest().left > 0) {
      turns_.Leave(*next, /*waits=*/true);
      continue;
    }
    const int whole = std::min(turn, tokens);
    const int of_oldest = queue->single() ? whole : (whole + 1) / 2;
    int had = 0, its_rows = 0;
    if (of_oldest > 0 || queue->oldest().left == 0) {
      const Read got = give(queue, queue->oldest().sequence, of_oldest);
      had = got.tokens;
      its_rows = got.rows;
    }
    if (!queue->empty() && rows > 0 && (had < whole || queue->shortest().left == 0))
      its_rows += give(queue, queue->shortest().sequence, whole - had).rows;
    turns_.Give(*next, its_rows);
    if (queue->empty()) turns_.Leave(*next, /*waits=*/false);
  }
  turns_.End();
}

}  // namespace coppice::worker
