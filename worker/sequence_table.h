// The leader's sequences by phase; within a phase, in order of arrival there. Owned by the engine
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/sequence.h"

namespace coppice::worker {

class SequenceTable {
 public:
  // Inserts in phase kWaiting. Returns nullptr and changes nothing when the id is taken.
  Sequence* Insert(std::unique_ptr<Sequence> sequence);
  Sequence* Find(uint64_t id) const;  // nullptr when there is none
  void Erase(uint64_t id);
  // Puts the sequence last in its new phase; in kWaiting, where its arrival puts it.
  void Move(Sequence* sequence, SequencePhase phase);

  // Those that have been admitted.
  std::vector<Sequence*> Running() const;
  // In order of arrival in the phase.
  std::vector<Sequence*> In(SequencePhase phase) const;
  // The first in the phase, or nullptr.
  Sequence* First(SequencePhase phase) const;
  int Count(SequencePhase phase) const;
  // How many clients have sequences here.
  int clients() const { return static_cast<int>(clients_.size()); }
  // Rows of all running sequences in a step, with forests (besides their nodes) and without.
  struct RowsOfAll {
    int roots = 0, plain = 0;
  };
  RowsOfAll CountRows() const;
  // Sequences whose drafts were requested after this step, and how many of these have not arrived.
  struct DraftsOfStep {
    int asked = 0, due = 0;
  };
  DraftsOfStep DraftsAskedIn(uint64_t step) const;
  // Over the sequences in kDrafting; +infinity when there are none.
  double EarliestDraftDeadline() const;
  bool empty() const { return sequences_.empty(); }

 private:
  using Ordered = std::map<uint64_t, Sequence*>;  // by phase_order
  Ordered& Of(SequencePhase phase) { return phases_[static_cast<size_t>(phase)]; }
  const Ordered& Of(SequencePhase phase) const { return phases_[static_cast<size_t>(phase)]; }

  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  std::array<Ordered, 4> phases_;
  std::map<std::string, int> clients_;  // number of sequences per client
  uint64_t last_order_ = 0;
};

}  // namespace coppice::worker
