#include "worker/sequence_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace coppice::worker {

Sequence* SequenceTable::Insert(std::unique_ptr<Sequence> sequence) {
  const uint64_t id = sequence->id;
  const auto [place, is_new] = sequences_.try_emplace(id, std::move(sequence));
  if (!is_new) return nullptr;
  ++clients_[place->second->client];
  Move(place->second.get(), SequencePhase::kWaiting);
  return place->second.get();
}

Sequence* SequenceTable::Find(uint64_t id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

void SequenceTable::Erase(uint64_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  const Sequence& sequence = *found->second;
  Of(sequence.phase).erase(sequence.phase_order);
  const auto client = clients_.find(sequence.client);
  if (--client->second == 0) clients_.erase(client);
  sequences_.erase(found);
}

void SequenceTable::Move(Sequence* sequence, SequencePhase phase) {
  Of(sequence->phase).erase(sequence->phase_order);
  sequence->phase = phase;
  sequence->phase_order = ++last_order_;
  if (sequence->arrival_order == 0) sequence->arrival_order = sequence->phase_order;
  if (phase == SequencePhase::kWaiting) sequence->phase_order = sequence->arrival_order;
  Of(phase).emplace(sequence->phase_order, sequence);
}

std::vector<Sequence*> SequenceTable::In(SequencePhase phase) const {
  std::vector<Sequence*> found;
  found.reserve(Of(phase).size());
  for (const auto& [order, sequence] : Of(phase)) found.push_back(sequence);
  return found;
}

std::vector<Sequence*> SequenceTable::Running() const {
  std::vector<Sequence*> running;
  for (const SequencePhase phase :
       {SequencePhase::kPrefill, SequencePhase::kDrafting, SequencePhase::kReady}) {
    for (const auto& [order, sequence] : Of(phase)) running.push_back(sequence);
  }
  return running;
}

Sequence* SequenceTable::First(SequencePhase phase) const {
  return Of(phase).empty() ? nullptr : Of(phase).begin()->second;
}

int SequenceTable::Count(SequencePhase phase) const { return static_cast<int>(Of(phase).size()); }

SequenceTable::RowsOfAll SequenceTable::CountRows() const {
  RowsOfAll rows;
  for (const SequencePhase phase :
       {SequencePhase::kPrefill, SequencePhase::kDrafting, SequencePhase::kReady}) {
    for (const auto& [order, sequence] : Of(phase)) {
      if (sequence->decoder == nullptr) continue;
      rows.roots += sequence->unknown_roots();
      rows.plain += static_cast<int>(sequence->decoder->roots().size());
    }
  }
  return rows;
}

SequenceTable::DraftsOfStep SequenceTable::DraftsAskedIn(uint64_t step) const {
  DraftsOfStep drafts;
  for (const auto& [order, sequence] : Of(SequencePhase::kDrafting))
    drafts.due += sequence->draft_step == step;
  drafts.asked = drafts.due;
  for (const auto& [order, sequence] : Of(SequencePhase::kReady))
    drafts.asked += sequence->draft_step == step && sequence->draft_came;
  return drafts;
}

double SequenceTable::EarliestDraftDeadline() const {
  double earliest = std::numeric_limits<double>::infinity();
  for (const auto& [order, sequence] : Of(SequencePhase::kDrafting))
    earliest = std::min(earliest, sequence->draft_deadline_s);
  return earliest;
}

}  // namespace coppice::worker
