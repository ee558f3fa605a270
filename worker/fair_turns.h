// Start-time fair queuing (Goyal, Vin, Cheng 1996) of clients for something scarce: rows of a step,
// KV blocks. The client with the least service per weight goes first. While two clients wait, their
// services, divided by their weights, differ by at most the largest single service of each, divided
// by its weight. A client earns nothing while it does not wait. Used by StepPlanner, PromptTurns
// and Scheduler. Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace coppice::worker {

class FairTurns {
 public:
  struct Asker {
    std::string client;
    double weight = 1;   // more than 0
    uint64_t since = 0;  // breaks ties: the client that has waited longest goes first
  };
  // A round: Begin with all clients that ask, each once. Then First, Give and the other calls, as
  // long as there is something to give. Then End. Askers are numbered in the order of Begin.
  void Begin(std::vector<Asker> askers);
  // The next client. nullopt: no client asks any more.
  std::optional<int> First() const;
  void Give(int asker, double amount);
  // Sets the time since which the asker has waited for its present request.
  void AsksSince(int asker, uint64_t since);
  // The asker leaves the round. waits: because there is nothing for it now.
  void Leave(int asker, bool waits);
  // Askers that have not left count as waiting.
  void End();

  // The client's service per weight, minus the least of the clients that wait. Between two rounds.
  double ahead(absl::string_view client) const;
  absl::Status CheckIntegrity() const;

 private:
  struct Turn {
    Asker asker;
    double ahead = 0;
    bool asks = true, waits = true;
  };
  std::tuple<double, uint64_t, int> Key(int asker) const;

  std::map<std::string, double, std::less<>> ahead_;   // clients that are not listed are at 0
  std::vector<Turn> turns_;                            // turns of this round
  std::set<std::tuple<double, uint64_t, int>> order_;  // keys of the clients that ask
};

}  // namespace coppice::worker
