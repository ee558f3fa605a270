#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "decoding/seeded/hierarchical_gumbel.h"
#include "decoding/seeded/largest_keys.h"
#include "decoding/seeded/search.h"
#include "decoding/sequence/sequence_decoder.h"
#include "sampling/deterministic_math.h"
#include "sampling/processed_row.h"
#include "sampling/ranked_row.h"

namespace coppice::decoding {
namespace {

// Rows that are read before the bounds are checked again: few at first, because the first ones say
// what the others need not list, then twice as many each time. It does not depend on the number of
// threads, because the choice of rows to read must not.
constexpr size_t kFirstTogether = 4, kMostTogether = 64;

struct Candidate {
  double key;  // ls + log pt, or the key of 5.8
  int beam;
  TokenId token;
  double log_score;  // ls of the child

  // Decreasing key, ties in canonical order.
  bool operator<(const Candidate& other) const {
    if (key != other.key) return key > other.key;
    return beam != other.beam ? beam < other.beam : token < other.token;
  }
};

void KeepBest(size_t count, std::vector<Candidate>* candidates) {
  if (candidates->size() <= count) return;
  std::nth_element(candidates->begin(), candidates->begin() + count, candidates->end());
  candidates->resize(count);
}

class SearchDecoder : public SequenceDecoder {
 public:
  SearchDecoder(const DecodingParams& params, bool certified)
      : SequenceDecoder(params),
        certified_(certified),
        noisy_(params.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement),
        beams_{Beam{}},
        keys_(width()),
        live_keys_(width()) {}

 private:
  DraftState draft_state() const override;
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) override;
  std::vector<Beam> LiveBeams() const override { return beams_; }
  RowUse row_use() const override {
    return {noisy_ ? RowUse::Kind::kNoisyRanks : RowUse::Kind::kRanks, static_cast<int>(reach())};
  }
  size_t width() const { return params().beam_width; }
  // The number of children of one beam that the walk can reach: the best W and all stop ids. Where
  // other tokens end paths, there may be more (ListEnough).
  size_t reach() const { return width() + params().stop_ids.size(); }
  bool Ends(const Candidate& candidate) const {
    return state().Ends(beams_[candidate.beam].path, candidate.token);
  }
  // A row that is being read, and the children that it lists.
  struct Reading {
    explicit Reading(const DecodingParams& params) : row(params, /*for_draws=*/false) {}
    sampling::ProcessedRow row;
    std::vector<sampling::ProcessedRow::Candidate> entries;
    sampling::RankedTokens ranked;
    std::vector<Candidate> candidates;
    bool whole = false;  // no other child of the row has a key of at least live_keys_.Next()
  };
  void ReadAndList(int beam, double bound, double least, sampling::RowSource* rows,
                   Reading* reading) const;
  void ListCandidates(int beam, double bound, double least, size_t reach, Reading* reading) const;
  // No child of the beam has a larger key.
  double KeyBound(const Beam& beam) const {
    return noisy_ ? BeamKey(params().seed, paths().hash(beam.path), beam.log_score)
                  : beam.log_score;
  }
  void ListEnough(int beam, double bound, double least, Reading* reading) const;
  void AddCandidates(absl::Span<const int> beams, absl::Span<const double> bound,
                     sampling::RowSource* rows);
  void KeepCandidates();
  void RankCandidates(double* below);
  bool DecideLayer(sampling::RowSource* rows, RoundLedger* ledger);
  void Walk(RoundLedger* ledger, std::vector<Beam>* next, std::vector<LayerOutput>* outputs);

  bool certified_;
  bool noisy_;
  std::vector<Beam> beams_;  // current beams in rank order
  std::vector<Candidate> candidates_;
  // Between rounds: the candidates of those current beams whose rows the last round had, [beams].
  // Empty after a layer was decided.
  std::vector<std::vector<Candidate>> kept_;
  std::vector<bool> is_read_;  // [beams] of this layer; its candidates are known
  // Of the candidates of this layer, and of those that do not end.
  LargestKeys keys_, live_keys_;
  std::vector<std::unique_ptr<Reading>> readings_;  // buffers for the rows that are read together
};

// Lists the best `reach` children of the row, except those with a key below `least`.
void SearchDecoder::ListCandidates(int b, double bound, double least, size_t reach,
                                   Reading* reading) const {
  const Beam& beam = beams_[b];
  const sampling::ProcessedRow& read = reading->row;
  std::vector<Candidate>& candidates = reading->candidates;
  candidates.clear();
  bool below = false;
  const auto add = [&](const Candidate& candidate) {
    if (candidate.key < least) {
      below = true;
    } else {
      candidates.push_back(candidate);
    }
  };
  if (!noisy_) {
    below = read.TopCandidates(reach, least - beam.log_score, &reading->entries);
    for (const sampling::ProcessedRow::Candidate& entry : reading->entries) {
      add({beam.log_score + entry.log_prob, b, entry.token, beam.log_score + entry.score_log_prob});
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
void SearchDecoder::ListEnough(int b, double bound, double least, Reading* reading) const {
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
void SearchDecoder::ReadAndList(int b, double bound, double least, sampling::RowSource* rows,
                                Reading* reading) const {
  const Beam& beam = beams_[b];
  const bool all = state().ends_by_text();
  const sampling::RankQuery query = {all ? static_cast<size_t>(-1) : reach(),
                                     least - beam.log_score};
  const bool may_rank = !noisy_ && (!all || params().format != nullptr);
  const bool ranked = reading->row.ReadOrRank(rows, beam.row, state().RowPathOf(beam.path),
                                              may_rank ? &query : nullptr, &reading->ranked);
  if (!ranked) return ListCandidates(b, bound, least, reach(), reading);
  reading->whole = true;
  reading->candidates.clear();
  for (size_t i = 0; i < reading->ranked.tokens.size(); ++i) {
    const double log_score = beam.log_score + reading->ranked.log_probs[i];
    if (log_score < least) continue;
    reading->candidates.push_back({log_score, b, reading->ranked.tokens[i], log_score});
  }
  if (!all) KeepBest(reach(), &reading->candidates);
}

// Adds the children of these beams. Rows that no earlier round has read are read in parallel. One
// thread finds out which texts end.
void SearchDecoder::AddCandidates(absl::Span<const int> beams, absl::Span<const double> bound,
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
void SearchDecoder::KeepCandidates() {
  kept_.assign(beams_.size(), {});
  for (const Candidate& candidate : candidates_) kept_[candidate.beam].push_back(candidate);
}

// Sorts the candidates that the walk can reach. Drops the others, which are below the W-th
// candidate that does not end. *below = the best key among the dropped ones.
void SearchDecoder::RankCandidates(double* below) {
  const double least = live_keys_.Last();
  const auto end = std::partition(candidates_.begin(), candidates_.end(),
                                  [least](const Candidate& c) { return c.key >= least; });
  *below = sampling::kLogZero;
  for (auto dropped = end; dropped != candidates_.end(); ++dropped) {
    *below = std::max(*below, dropped->key);
  }
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end());
}

// docs/algorithms.md 8: ranks count all candidates. An end with a rank below W is an output. The
// candidates that do not end fill the next beams.
void SearchDecoder::Walk(RoundLedger* ledger, std::vector<Beam>* next,
                         std::vector<LayerOutput>* outputs) {
  double below;
  RankCandidates(&below);
  for (size_t rank = 0; rank < candidates_.size() && next->size() < width(); ++rank) {
    const Candidate& candidate = candidates_[rank];
    const bool ends = Ends(candidate);
    if (ends && rank >= width()) continue;
    const Beam child = ledger->Extend(&mutable_state()->paths(), beams_[candidate.beam],
                                      candidate.token, candidate.log_score);
    outputs->push_back({child.path, child.log_score, ends});
    if (!ends) next->push_back(child);
    if (next->size() == width()) {
      ledger->AddMargin(candidate.key -
                        (rank + 1 < candidates_.size() ? candidates_[rank + 1].key : below));
    }
  }
}

// Returns false if the known rows do not decide the layer. Beams are read by decreasing bound, some
// at a time. With the certificate, a beam whose bound is below the W-th candidate needs no row. Any
// other beam without a row stops the layer.
bool SearchDecoder::DecideLayer(sampling::RowSource* rows, RoundLedger* ledger) {
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
  keys_.Clear();
  live_keys_.Clear();
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
  std::vector<Beam> next;
  std::vector<LayerOutput> outputs;
  Walk(ledger, &next, &outputs);
  ledger->AddLayer();
  kept_.clear();
  is_read_.clear();
  beams_ = mutable_state()->EndLayer(std::move(outputs)) ? std::move(next) : std::vector<Beam>();
  return true;
}

void SearchDecoder::Decide(const DraftForest&, sampling::RowSource* rows, RoundLedger* ledger) {
  for (size_t b = 0; b < beams_.size(); ++b) beams_[b].BecomeRoot(b);
  while (!finished() && DecideLayer(rows, ledger)) {
  }
}

// Children of known rows that rank behind the first W that do not end cannot become beams.
DraftState SearchDecoder::draft_state() const {
  DraftState state = SequenceDecoder::draft_state();
  std::vector<Candidate> children;
  for (size_t b = 0; b < kept_.size(); ++b) {
    if (beams_[b].row >= 0) state.known_roots.push_back(static_cast<int32_t>(b));
    for (const Candidate& candidate : kept_[b]) {
      if (!Ends(candidate)) children.push_back(candidate);
    }
  }
  std::sort(children.begin(), children.end());
  if (children.size() > width()) children.resize(width());
  for (const Candidate& child : children)
    state.known_children.push_back({child.beam, child.token, child.log_score, child.key});
  return state;
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeSearchDecoder(const DecodingParams& params, bool certified) {
  return std::make_unique<SearchDecoder>(params, certified);
}

}  // namespace coppice::decoding
