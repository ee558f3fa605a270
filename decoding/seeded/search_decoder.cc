#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "decoding/seeded/hierarchical_gumbel.h"
#include "decoding/seeded/search.h"
#include "decoding/seeded/taken_tokens.h"
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
  double key;  // ls + log pt less penalties, or the key of 5.8
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

// A row that is being read, and the children that it lists.
struct Reading {
  explicit Reading(const DecodingParams& params) : row(params, /*for_draws=*/false) {}
  sampling::ProcessedRow row;
  std::vector<sampling::ProcessedRow::Candidate> entries;
  sampling::RankedTokens ranked;
  std::vector<Candidate> candidates;
  bool whole = false;  // no other child of the row has a key of at least LeastKey()
};
using Readings = std::vector<std::unique_ptr<Reading>>;  // of the rows that are read together

// A group of beams and how it decides its next layer. Without groups (8.2): all beams.
class SearchGroup {
 public:
  // *state and *readings, which groups share, must outlive the group.
  SearchGroup(const SequenceState* state, Readings* readings, int number, bool certified)
      : state_(state),
        readings_(*readings),
        number_(number),
        certified_(certified),
        noisy_(params().kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement),
        beams_{Beam{}} {}

  const std::vector<Beam>& beams() const { return beams_; }  // in rank order
  std::vector<Beam>& mutable_beams() { return beams_; }
  // W of the layer that is decided next, of this group.
  size_t width() const {
    return LayerWidth(params(), state().layers() + 1) / params().num_beam_groups;
  }
  // The number of children of one beam that the walk can reach: the best W and all stop ids. Where
  // other tokens end paths, there may be more (ListEnough).
  size_t reach() const { return width() + params().stop_ids.size(); }

  // Ranks the children of the beams. False: the known rows do not decide the layer. *taken: of the
  // groups before. It must outlive the calls up to Walk.
  bool RankChildren(sampling::RowSource* rows, const TakenTokens* taken);
  // Adds the tokens of the beams of the next layer, which RankChildren has decided.
  void AddTaken(TakenTokens* taken) const;
  // Goes on to that layer. Its beams are those of the next one.
  void Walk(PathTree* paths, RoundLedger* ledger, std::vector<LayerOutput>* outputs);
  void End() { beams_.clear(); }
  // The layer waits for another group: the rows are read again.
  void Forget();
  void DropHopeless();
  // Sorted. Children of known rows that rank behind these cannot become beams.
  std::vector<Candidate> KeptChildren() const;
  bool has_kept() const { return !kept_.empty(); }

 private:
  const SequenceState& state() const { return *state_; }
  const DecodingParams& params() const { return state_->params(); }
  const PathTree& paths() const { return state_->paths(); }
  bool Ends(const Candidate& candidate) const {
    return state().Ends(beams_[candidate.beam].path, candidate.token);
  }
  // The same of one beam, among whose children some may complete the format.
  size_t ReachOf(const Beam& beam) const {
    return reach() + state().SomeComplete(beam.path, reach());
  }
  void ReadAndList(int beam, double bound, double least, sampling::RowSource* rows,
                   Reading* reading) const;
  void ListCandidates(int beam, double bound, double least, size_t reach, Reading* reading) const;
  // No child of the beam has a larger key.
  double KeyBound(const Beam& beam) const {
    return noisy_ ? BeamKey(params().seed, paths().hash(beam.path), beam.log_score)
                  : beam.log_score - beam.penalty;
  }
  // What the best `reach` children need of a row, where at most as many tokens as were taken lose
  // their place to others.
  sampling::RankQuery QueryOf(const Beam& beam, double least, size_t reach) const {
    return {reach + taken_->distinct(), least - (beam.log_score - beam.penalty)};
  }
  void ListEnough(int beam, double bound, double least, Reading* reading) const;
  void AddCandidates(absl::Span<const int> beams, absl::Span<const double> bound,
                     sampling::RowSource* rows);
  void KeepCandidates();
  // Key of the W-th best candidate that does not end; -inf if there are fewer.
  double WidthThKey() const;
  // The same of the W+1st: candidates below it do not matter, not even for the margin.
  double LeastKey() const {
    return best_keys_.size() <= width() ? sampling::kLogZero : best_keys_.front();
  }
  void AddKey(double key);
  void RankCandidates();
  double PenaltyOf(TokenId token) const {
    return params().diversity_penalty * taken_->Count(token);
  }
  // Calls use(candidate, ends) for every output of the layer, in rank order.
  template <typename Use>
  void ForOutputs(const Use& use) const;

  const SequenceState* state_;
  Readings& readings_;
  int number_;
  bool certified_;
  bool noisy_;
  std::vector<Beam> beams_;  // current beams in rank order
  std::vector<Candidate> candidates_;
  double below_ = sampling::kLogZero;  // the best key that RankCandidates has dropped
  const TakenTokens* taken_ = nullptr;
  // Between rounds: the candidates of those current beams whose rows the last round had, [beams].
  // Empty after a layer was decided.
  std::vector<std::vector<Candidate>> kept_;
  std::vector<bool> is_read_;      // [beams] of this layer; its candidates are known
  std::vector<double> best_keys_;  // the W+1 largest keys of candidates that do not end, as a heap
};

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
  if (!state().has_stop_strings()) return;  // all candidates that end are listed
  for (size_t reach = ReachOf(beams_[b]); !reading->whole;
       ListCandidates(b, bound, least, reach, reading)) {
    const size_t live =
        std::count_if(reading->candidates.begin(), reading->candidates.end(),
                      [this](const Candidate& candidate) { return !Ends(candidate); });
    if (live >= width() || reach >= static_cast<size_t>(reading->row.entries())) break;
    reach *= 4;
  }
}

// Reads the row and lists its children. With stop strings it may be listed again, so it is not only
// ranked.
void SearchGroup::ReadAndList(int b, double bound, double least, sampling::RowSource* rows,
                              Reading* reading) const {
  const Beam& beam = beams_[b];
  const size_t reach = ReachOf(beam);
  const sampling::RankQuery query = QueryOf(beam, least, reach);
  const bool may_rank = !noisy_ && !state().has_stop_strings();
  const bool ranked = reading->row.ReadOrRank(rows, beam.row, state().RowPathOf(beam.path),
                                              may_rank ? &query : nullptr, &reading->ranked);
  if (!ranked) return ListCandidates(b, bound, least, reach, reading);
  reading->candidates.clear();
  for (size_t i = 0; i < reading->ranked.tokens.size(); ++i) {
    const TokenId token = reading->ranked.tokens[i];
    const double log_score = beam.log_score + reading->ranked.log_probs[i];
    const double key = log_score - (beam.penalty + PenaltyOf(token));
    if (key >= least) reading->candidates.push_back({key, b, token, log_score});
  }
  KeepBest(reach, &reading->candidates);
}

// Adds the children of these beams. Rows that no earlier round has read are read in parallel. One
// thread finds out which texts end.
void SearchGroup::AddCandidates(absl::Span<const int> beams, absl::Span<const double> bound,
                                sampling::RowSource* rows) {
  while (readings_.size() < beams.size()) readings_.push_back(std::make_unique<Reading>(params()));
  const double least = LeastKey();  // of the rows before these
  rows->threads()->RunJobs(static_cast<int>(beams.size()), [&](int i) {
    const int b = beams[i];
    if (!is_read_[b]) ReadAndList(b, bound[b], least, rows, readings_[i].get());
  });
  for (size_t i = 0; i < beams.size(); ++i) {
    const int b = beams[i];
    if (!is_read_[b]) ListEnough(b, bound[b], least, readings_[i].get());
    const double floor = LeastKey();
    for (const Candidate& candidate : is_read_[b] ? kept_[b] : readings_[i]->candidates) {
      if (candidate.key < floor) continue;
      candidates_.push_back(candidate);
      if (!Ends(candidate)) AddKey(candidate.key);
    }
    is_read_[b] = true;
  }
}

// The layer waits for another round, which need not read these rows again.
void SearchGroup::KeepCandidates() {
  kept_.assign(beams_.size(), {});
  for (const Candidate& candidate : candidates_) kept_[candidate.beam].push_back(candidate);
}

// The smallest of W+1 keys is the first of the heap, so the W-th is one of its two children.
double SearchGroup::WidthThKey() const {
  if (best_keys_.size() < width()) return sampling::kLogZero;
  if (best_keys_.size() == width()) return best_keys_.front();
  return best_keys_.size() == 2 ? best_keys_[1] : std::min(best_keys_[1], best_keys_[2]);
}

void SearchGroup::AddKey(double key) {
  if (best_keys_.size() == width() + 1) {
    if (!(key > best_keys_.front())) return;
    std::pop_heap(best_keys_.begin(), best_keys_.end(), std::greater<>());
    best_keys_.pop_back();
  }
  best_keys_.push_back(key);
  std::push_heap(best_keys_.begin(), best_keys_.end(), std::greater<>());
}

// Sorts the candidates that the walk can reach. Drops the others, which are below the W-th
// candidate that does not end. below_ = the best key among the dropped ones.
void SearchGroup::RankCandidates() {
  const double least = WidthThKey();
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
  best_keys_.clear();
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
    wth = WidthThKey();
  }
  if (missing > sampling::kLogZero && !(wth > missing)) {
    KeepCandidates();
    return false;
  }
  RankCandidates();
  return true;
}

std::vector<Candidate> SearchGroup::KeptChildren() const {
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

// docs/algorithms.md 8.4: the other hypotheses stay the same if beams that cannot reach min_score are
// dropped. Let b be such a beam after layer L, and let a candidate of layer L + 1 rank behind a child
// of b. Ranks are those of ls, so its ls is at most that of the child, and at most ls(b). No score of
// it or of a continuation is above Bound(ls(b), L), which is below min_score, whatever the sign of
// alpha: Bound grows with ls, and it is the largest score of all lengths from L + 1 on. So all that
// the children of b keep out of the beams, or out of the ranks of ends, cannot be returned either.
// This needs ranks by ls (no noise, no scope that adds up something else) and one group; and policy
// EXACT, because FIRST counts all hypotheses that end.
bool DropsHopeless(const DecodingParams& params) {
  return params.min_score > kEveryScore && !params.stop_when_full &&
         params.kind == sampling::DecodingKind::kBeamSearch &&
         params.sampling.mode == sampling::SamplingScope::kRow && params.num_beam_groups == 1;
}

void SearchGroup::DropHopeless() {
  beams_.erase(std::remove_if(beams_.begin(), beams_.end(),
                              [this](const Beam& beam) { return !state().CanReach(beam); }),
               beams_.end());
}

// The groups decide a layer one after the other, and end it together. Groups may hold the same
// path, which is one root.
class SearchDecoder : public SequenceDecoder {
 public:
  SearchDecoder(const DecodingParams& params, bool certified)
      : SequenceDecoder(params), drops_(DropsHopeless(params)) {
    for (int g = 0; g < params.num_beam_groups; ++g)
      groups_.emplace_back(&state(), &readings_, g, certified);
  }

  DraftState draft_state() const override;
  std::vector<TokenId> StablePrefix() const override { return state().StablePrefix(AllBeams()); }

 private:
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) override;
  std::vector<Beam> LiveBeams() const override;
  RowUse row_use() const override;
  bool DecideLayer(sampling::RowSource* rows, RoundLedger* ledger);
  std::vector<Beam> AllBeams() const;  // group by group
  // The index among the live beams, by path.
  absl::flat_hash_map<PathId, int> Roots() const;

  const bool drops_;
  Readings readings_;
  std::vector<SearchGroup> groups_;
};

std::vector<Beam> SearchDecoder::AllBeams() const {
  std::vector<Beam> beams;
  for (const SearchGroup& group : groups_)
    beams.insert(beams.end(), group.beams().begin(), group.beams().end());
  return beams;
}

std::vector<Beam> SearchDecoder::LiveBeams() const {
  if (groups_.size() == 1) return groups_[0].beams();
  std::vector<Beam> beams = AllBeams();
  absl::flat_hash_set<PathId> seen;
  beams.erase(std::remove_if(beams.begin(), beams.end(),
                             [&](const Beam& beam) { return !seen.insert(beam.path).second; }),
              beams.end());
  return beams;
}

absl::flat_hash_map<PathId, int> SearchDecoder::Roots() const {
  absl::flat_hash_map<PathId, int> root_of;
  for (const PathId path : roots()) root_of.emplace(path, static_cast<int>(root_of.size()));
  return root_of;
}

// The layers of a round use the best W children of each row and all stop ids. A token that was taken
// for another group can lose its place to another one, so a group needs as many more than its own
// beams as the groups before it have beams: at most W.
RowUse SearchDecoder::row_use() const {
  const bool noisy = params().kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  const int widest = WidestFrom(params(), state().layers() + 1);
  return {noisy ? RowUse::Kind::kNoisyRanks : RowUse::Kind::kRanks,
          widest + static_cast<int>(params().stop_ids.size())};
}

// Returns false if the known rows do not decide the layer of every group.
bool SearchDecoder::DecideLayer(sampling::RowSource* rows, RoundLedger* ledger) {
  std::vector<TakenTokens> taken(groups_.size());  // [groups] before each group
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (state().GoesOn(g) && !groups_[g].RankChildren(rows, &taken[g])) {
      for (size_t before = 0; before < g; ++before) groups_[before].Forget();
      return false;
    }
    if (g + 1 == groups_.size()) break;
    taken[g + 1] = taken[g];
    if (state().GoesOn(g)) groups_[g].AddTaken(&taken[g + 1]);
  }
  std::vector<LayerOutput> outputs;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (state().GoesOn(g)) groups_[g].Walk(&mutable_state()->paths(), ledger, &outputs);
  }
  ledger->AddLayer(LayerWidth(params(), state().layers() + 1));
  mutable_state()->EndLayer(std::move(outputs));
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!state().GoesOn(g)) groups_[g].End();
  }
  if (drops_) groups_[0].DropHopeless();
  return true;
}

void SearchDecoder::Decide(const DraftForest&, sampling::RowSource* rows, RoundLedger* ledger) {
  const absl::flat_hash_map<PathId, int> root_of = Roots();
  for (SearchGroup& group : groups_) {
    for (Beam& beam : group.mutable_beams()) beam.BecomeRoot(root_of.at(beam.path));
  }
  while (!finished() && DecideLayer(rows, ledger)) {
  }
}

DraftState SearchDecoder::draft_state() const {
  DraftState state = SequenceDecoder::draft_state();
  if (groups_.size() > 1) {
    const absl::flat_hash_map<PathId, int> root_of = Roots();
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const Beam& beam : groups_[g].beams())
        state.group_beams.push_back({root_of.at(beam.path), static_cast<int32_t>(g), beam.penalty});
    }
    return state;
  }
  const SearchGroup& all = groups_[0];
  if (!all.has_kept()) return state;
  for (size_t b = 0; b < all.beams().size(); ++b) {
    if (all.beams()[b].row >= 0) state.known_roots.push_back(static_cast<int32_t>(b));
  }
  for (const Candidate& child : all.KeptChildren())
    state.known_children.push_back({child.beam, child.token, child.log_score, child.key});
  return state;
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeSearchDecoder(const DecodingParams& params, bool certified) {
  return std::make_unique<SearchDecoder>(params, certified);
}

}  // namespace coppice::decoding
