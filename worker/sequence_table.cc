#include "worker/sequence_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace coppice::worker {

Sequence* SequenceTable::Insert(std::unique_ptr<Sequence> sequence) {
  const uint64_t id = sequence->id;
  const auto [place, is_new] = sequences_.try_emplace(id, std::move(sequence));
  if (!is_new) return nullptr;
  Move(place->second.get(), SequencePhase::kWaiting);
  return place->second.get();
}

Sequence* SequenceTable::Find(uint64_t id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

void SequenceTable::Erase(uint64_t id) { sequences_.erase(id); }

void SequenceTable::Move(Sequence* sequence, SequencePhase phase) {
  sequence->phase = phase;
  sequence->phase_order = ++last_order_;
}

std::vector<Sequence*> SequenceTable::In(SequencePhase phase) const {
  std::vector<Sequence*> found;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == phase) found.push_back(sequence.get());
  }
  std::sort(found.begin(), found.end(),
            [](const Sequence* a, const Sequence* b) { return a->phase_order < b->phase_order; });
  return found;
}

Sequence* SequenceTable::First(SequencePhase phase) const {
  Sequence* first = nullptr;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase != phase) continue;
    if (first == nullptr || sequence->phase_order < first->phase_order) first = sequence.get();
  }
  return first;
}

int SequenceTable::Count(SequencePhase phase) const {
  return static_cast<int>(
      std::count_if(sequences_.begin(), sequences_.end(),
                    [phase](const auto& entry) { return entry.second->phase == phase; }));
}

SequenceTable::RowsOfAll SequenceTable::CountRows() const {
  RowsOfAll rows;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == SequencePhase::kWaiting || sequence->decoder == nullptr) continue;
    rows.roots += sequence->unknown_roots();
    rows.plain += static_cast<int>(sequence->decoder->roots().size());
  }
  return rows;
}

SequenceTable::DraftsOfStep SequenceTable::DraftsAskedIn(uint64_t step) const {
  DraftsOfStep drafts;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->draft_step != step) continue;
    const bool due = sequence->phase == SequencePhase::kDrafting;
    const bool came = sequence->phase == SequencePhase::kReady && sequence->draft_came;
    drafts.due += due;
    drafts.asked += due || came;
  }
  return drafts;
}

double SequenceTable::EarliestDraftDeadline() const {
  double earliest = std::numeric_limits<double>::infinity();
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->phase == SequencePhase::kDrafting) {
      earliest = std::min(earliest, sequence->draft_deadline_s);
    }
  }
  return earliest;
}

}  // namespace coppice::worker
