#include "decoding/seeded/search_group.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace coppice::decoding {
namespace {

// Rows that are read before the bounds are checked again: few at first, because the first ones say
// what the others need not list, then twice as many each time. It does not depend on the number of
// threads, because the choice of rows to read must not.
constexpr size_t kFirstTogether = 4, kMostTogether = 64;

void KeepBest(size_t count, std::vector<SearchGroup::Candidate>* candidates) {
  if (candidates->size() <= count) return;
  std::nth_element(candidates->begin(), candidates->begin() + count, candidates->end());
  candidates->resize(count);
}

}  // namespace

// Lists the best `reach` children of the row, except those with a key below `least`.
void SearchGroup::ListCandidates(int b, double bound, double least, size_t reach,
                                 Reading* reading) const {
  const Beam& beam = beams_[b];
  const sampling::ProcessedRow& read = reading->row;
  std::vector<Candidate>& candidates = reading->candidates;
  candidates.clear();
  bool below = false;  // all children from `least` on are listed
  const auto add = [&](const Candidate& candidate) {
    if (candidate.key >= least) {
      candidates.push_back(candidate);
    } else if (taken_->Count(candidate.token) == 0) {
      below = true;
    }
  };
  if (!noisy_) {
    const sampling::RankQuery query = QueryOf(beam, least, reach);
    below = read.TopCandidates(query.count, query.least, &reading->entries);
    for (const sampling::ProcessedRow::Candidate& entry : reading->entries) {
      const double key = beam.log_score + entry.log_prob - (beam.penalty + PenaltyOf(entry.token));
      add({key, b, entry.token, beam.log_score + entry.score_log_prob});
    }
  } else {
    const sampling::Distribution uncut =
        read.cut() ? sampling::Distribution() : read.Materialise().row;
    const sampling::Distribution& row = read.cut() ? read.sparse() : uncut;
    const std::vector<double> keys =
        ChildKeys(params().seed, paths().hash(beam.path), beam.log_score, bound, row.tokens,
                  row.log_probs, reach, least);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == sampling::kLogZero) continue;
      add({keys[i], b, row.tokens[i], beam.log_score + read.Find(row.tokens[i]).score_log_prob});
    }
  }
  reading->whole = (below && candidates.size() <= reach) || candidates.size() < reach;
  KeepBest(reach, &candidates);
}

// Lists children until all that the walk can reach are listed: W that do not end, and all better
// ones.
void SearchGroup::ListEnough(int b, double bound, double least, Reading* reading) const {
  if (!state().ends_by_text()) return;  // all candidates that end are listed
  for (size_t reach = this->reach(); !reading->whole;
       ListCandidates(b, bound, least, reach, reading)) {
    const size_t live =
        std::count_if(reading->candidates.begin(), reading->candidates.end(),
                      [this](const Candidate& candidate) { return !Ends(candidate); });
    if (live >= width() || reach >= static_cast<size_t>(reading->row.entries())) break;
    reach *= 4;
  }
}

// Reads the row and lists its children. Where texts end paths it may be listed again, so it is not
// only ranked, unless a format leaves so few tokens that all that are good enough are listed.
void SearchGroup::ReadAndList(int b, double bound, double least, sampling::RowSource* rows,
                              Reading* reading) const {
  const Beam& beam = beams_[b];
  const bool all = state().ends_by_text();
  sampling::RankQuery query = QueryOf(beam, least, reach());
  if (all) query.count = static_cast<size_t>(-1);
  const bool may_rank = !noisy_ && (!all || params().format != nullptr);
  const bool ranked = reading->row.ReadOrRank(rows, beam.row, state().RowPathOf(beam.path),
                                              may_rank ? &query : nullptr, &reading->ranked);
  if (!ranked) return ListCandidates(b, bound, least, reach(), reading);
  reading->whole = true;
  reading->candidates.clear();
  for (size_t i = 0; i < reading->ranked.tokens.size(); ++i) {
    const TokenId token = reading->ranked.tokens[i];
    const double log_score = beam.log_score + reading->ranked.log_probs[i];
    const double key = log_score - (beam.penalty + PenaltyOf(token));
    if (key >= least) reading->candidates.push_back({key, b, token, log_score});
  }
  if (!all) KeepBest(reach(), &reading->candidates);
}

// Adds the children of these beams. Rows that no earlier round has read are read in parallel. One
// thread finds out which texts end.
void SearchGroup::AddCandidates(absl::Span<const int> beams, absl::Span<const double> bound,
                                sampling::RowSource* rows) {
  while (readings_.size() < beams.size()) readings_.push_back(std::make_unique<Reading>(params()));
  const double least = live_keys_.Next();  // of the rows before these
  rows->threads()->RunJobs(static_cast<int>(beams.size()), [&](int i) {
    const int b = beams[i];
    if (!is_read_[b]) ReadAndList(b, bound[b], least, rows, readings_[i].get());
  });
  for (size_t i = 0; i < beams.size(); ++i) {
    const int b = beams[i];
    if (!is_read_[b]) ListEnough(b, bound[b], least, readings_[i].get());
    for (const Candidate& candidate : is_read_[b] ? kept_[b] : readings_[i]->candidates) {
      if (candidate.key < live_keys_.Next()) continue;
      const bool ends = Ends(candidate);
      if (ends && candidate.key < keys_.Next()) continue;  // its rank is not below W
      candidates_.push_back(candidate);
      keys_.Add(candidate.key);
      if (!ends) live_keys_.Add(candidate.key);
    }
    is_read_[b] = true;
  }
}

// The layer waits for another round, which need not read these rows again.
void SearchGroup::KeepCandidates() {
  kept_.assign(beams_.size(), {});
  for (const Candidate& candidate : candidates_) kept_[candidate.beam].push_back(candidate);
}

// Sorts the candidates that the walk can reach. Drops the others, which are below the W-th
// candidate that does not end. below_ = the best key among the dropped ones.
void SearchGroup::RankCandidates() {
  const double least = live_keys_.Last();
  const auto end = std::partition(candidates_.begin(), candidates_.end(),
                                  [least](const Candidate& c) { return c.key >= least; });
  below_ = sampling::kLogZero;
  for (auto dropped = end; dropped != candidates_.end(); ++dropped) {
    below_ = std::max(below_, dropped->key);
  }
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end());
}

// docs/algorithms.md 8: ranks count all candidates. An end with a rank below W is an output. The
// candidates that do not end fill the next beams.
template <typename Use>
void SearchGroup::ForOutputs(const Use& use) const {
  size_t live = 0;
  for (size_t rank = 0; rank < candidates_.size() && live < width(); ++rank) {
    const bool ends = Ends(candidates_[rank]);
    if (ends && rank >= width()) continue;
    live += ends ? 0 : 1;
    use(candidates_[rank], ends);
  }
}

void SearchGroup::AddTaken(TakenTokens* taken) const {
  ForOutputs([&](const Candidate& candidate, bool ends) {
    if (!ends) taken->Add(candidate.token);
  });
}

void SearchGroup::Walk(PathTree* paths, RoundLedger* ledger, std::vector<LayerOutput>* outputs) {
  std::vector<Beam> next;
  ForOutputs([&](const Candidate& candidate, bool ends) {
    Beam child =
        ledger->Extend(paths, beams_[candidate.beam], candidate.token, candidate.log_score);
    child.penalty = beams_[candidate.beam].penalty + PenaltyOf(candidate.token);
    outputs->push_back({child.path, child.log_score, ends, number_, child.penalty});
    if (!ends) next.push_back(child);
    if (next.size() < width()) return;
    const auto rank = static_cast<size_t>(&candidate - candidates_.data());
    ledger->AddMargin(candidate.key -
                      (rank + 1 < candidates_.size() ? candidates_[rank + 1].key : below_));
  });
  Forget();
  beams_ = std::move(next);
}

void SearchGroup::Forget() {
  kept_.clear();
  is_read_.clear();
}

// Beams are read by decreasing bound, some at a time. With the certificate, a beam whose bound is
// below the W-th candidate needs no row. Any other beam without a row stops the layer.
bool SearchGroup::RankChildren(sampling::RowSource* rows, const TakenTokens* taken) {
  taken_ = taken;
  std::vector<double> bound(beams_.size());
  std::vector<int> order(beams_.size());
  double missing = sampling::kLogZero;
  for (size_t b = 0; b < beams_.size(); ++b) {
    bound[b] = KeyBound(beams_[b]);
    if (beams_[b].row < 0) {
      missing = std::max(missing, bound[b]);
      if (!certified_) return false;
    }
  }
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bound[a] > bound[b]; });
  candidates_.clear();
  keys_.Clear(width());
  live_keys_.Clear(width());
  is_read_.resize(beams_.size(), false);
  double wth = sampling::kLogZero;
  size_t most = kFirstTogether;
  for (size_t next = 0; next < order.size(); most = std::min(2 * most, kMostTogether)) {
    std::vector<int> together;
    for (; next < order.size() && together.size() < most; ++next) {
      const int b = order[next];
      if (beams_[b].row < 0) continue;
      if (wth > sampling::kLogZero && bound[b] < wth) break;
      together.push_back(b);
    }
    if (together.empty()) break;
    AddCandidates(together, bound, rows);
    wth = live_keys_.Last();
  }
  if (missing > sampling::kLogZero && !(wth > missing)) {
    KeepCandidates();
    return false;
  }
  RankCandidates();
  return true;
}

std::vector<SearchGroup::Candidate> SearchGroup::KeptChildren() const {
  std::vector<Candidate> children;
  for (const std::vector<Candidate>& kept : kept_) {
    for (const Candidate& candidate : kept) {
      if (!Ends(candidate)) children.push_back(candidate);
    }
  }
  std::sort(children.begin(), children.end());
  if (children.size() > width()) children.resize(width());
  return children;
}

void SearchGroup::DropHopeless() {
  beams_.erase(std::remove_if(beams_.begin(), beams_.end(),
                              [this](const Beam& beam) { return !state().CanReach(beam); }),
               beams_.end());
}

}  // namespace coppice::decoding
