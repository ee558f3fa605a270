// Turns of clients at something that not all can have at once: rows of a step, KV blocks. Of those
// that ask, the one goes first that has had the least for its weight: start-time fair queuing (Goyal,
// Vin, Cheng 1996). While two clients wait, what they get, divided by their weights, differs by at most
// the largest single gift of each, divided by its weight. Who does not wait earns nothing.
// Used by StepPlanner, PromptTurns and Scheduler. Thread-compatible.
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
    double weight = 1;  // more than 0
    uint64_t since =
        0;  // of clients that have had equally much, the one goes first that asks longest
  };
  // A round: Begin with all that ask, each client once; First, Give and the rest as often as there is
  // something to give; End. Askers are numbered in the order of Begin.
  void Begin(std::vector<Asker> askers);
  // Who is next; nullopt when nobody asks any more.
  std::optional<int> First() const;
  void Give(int asker, double amount);
  // What it asks for now, it asks for since then.
  void AsksSince(int asker, uint64_t since);
  // It asks for no more in this round. waits: because there is nothing for it now.
  void Leave(int asker, bool waits);
  // Who has not left waits.
  void End();

  // How much more the client has had, for its weight, than the one of those that wait that has had
  // the least. Between two rounds.
  double ahead(absl::string_view client) const;
  absl::Status CheckIntegrity() const;

 private:
  struct Turn {
    Asker asker;
    double ahead = 0;
    bool asks = true, waits = true;
  };
  std::tuple<double, uint64_t, int> Key(int asker) const;

  std::map<std::string, double, std::less<>> ahead_;   // who is not here is at 0
  std::vector<Turn> turns_;                            // of this round
  std::set<std::tuple<double, uint64_t, int>> order_;  // Key of those that ask
};

}  // namespace coppice::worker
