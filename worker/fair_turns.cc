#include "worker/fair_turns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::worker {

std::tuple<double, uint64_t, int> FairTurns::Key(int asker) const {
  return {turns_[asker].ahead, turns_[asker].asker.since, asker};
}

void FairTurns::Begin(std::vector<Asker> askers) {
  for (Asker& asker : askers) {
    const double ahead = this->ahead(asker.client);
    turns_.push_back({std::move(asker), ahead});
    order_.insert(Key(static_cast<int>(turns_.size()) - 1));
  }
}

std::optional<int> FairTurns::First() const {
  if (order_.empty()) return std::nullopt;
  return std::get<int>(*order_.begin());
}

void FairTurns::Give(int asker, double amount) {
  Turn& turn = turns_[asker];
  order_.erase(Key(asker));
  turn.ahead += amount / turn.asker.weight;
  if (turn.asks) order_.insert(Key(asker));
}

void FairTurns::AsksSince(int asker, uint64_t since) {
  order_.erase(Key(asker));
  turns_[asker].asker.since = since;
  order_.insert(Key(asker));
}

void FairTurns::Leave(int asker, bool waits) {
  order_.erase(Key(asker));
  turns_[asker].asks = false;
  turns_[asker].waits = waits;
}

void FairTurns::End() {
  double least = std::numeric_limits<double>::infinity();
  for (const Turn& turn : turns_) {
    ahead_[turn.asker.client] = turn.ahead;
    if (turn.waits) least = std::min(least, turn.ahead);
  }
  for (auto& [client, ahead] : ahead_) ahead -= least;  // nobody waits: all are equal again
  std::erase_if(ahead_, [](const auto& entry) { return entry.second <= 0; });
  turns_.clear();
  order_.clear();
}

double FairTurns::ahead(absl::string_view client) const {
  const auto found = ahead_.find(client);
  return found == ahead_.end() ? 0 : found->second;
}

absl::Status FairTurns::CheckIntegrity() const {
  for (const auto& [client, ahead] : ahead_) {
    if (!std::isfinite(ahead) || ahead <= 0)
      return absl::InternalError(absl::StrCat("client ", client, " is ahead by ", ahead));
  }
  int asking = 0;
  for (int i = 0; i < static_cast<int>(turns_.size()); ++i) {
    if (!turns_[i].asks) continue;
    ++asking;
    if (!order_.contains(Key(i)))
      return absl::InternalError(absl::StrCat("asker ", i, " has no place"));
  }
  if (asking == static_cast<int>(order_.size())) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(order_.size(), " places, ", asking, " askers"));
}

}  // namespace coppice::worker
