// The leader's sequences: each in one phase, and in each phase in order of arrival there. Pure
// bookkeeping. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "worker/sequence.h"

namespace coppice::worker {

class SequenceTable {
 public:
  // nullptr, and nothing changed, when a sequence of this id is there. Phase kWaiting.
  Sequence* Insert(std::unique_ptr<Sequence> sequence);
  Sequence* Find(uint64_t id) const;  // nullptr when there is none
  void Erase(uint64_t id);
  // Last in line in its new phase.
  void Move(Sequence* sequence, SequencePhase phase);

  // In order of arrival in the phase.
  std::vector<Sequence*> In(SequencePhase phase) const;
  // The first in the phase, or nullptr.
  Sequence* First(SequencePhase phase) const;
  int Count(SequencePhase phase) const;
  // Of a sequence in kDrafting; +infinity when there is none.
  double EarliestDraftDeadline() const;
  bool empty() const { return sequences_.empty(); }

 private:
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  uint64_t last_order_ = 0;
};

}  // namespace coppice::worker
