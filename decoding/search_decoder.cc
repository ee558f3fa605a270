#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "decoding/hierarchical_gumbel.h"
#include "decoding/search.h"
#include "decoding/sequence_state.h"
#include "decoding/warped_row.h"

namespace coppice {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

struct Candidate {
  double key;  // decides: ls + log pt, or the key of 5.8
  int beam;
  TokenId token;
  double log_score;  // ls of the child

  // Decreasing key, ties in canonical order.
  bool operator<(const Candidate& other) const {
    if (key != other.key) return key > other.key;
    return beam != other.beam ? beam < other.beam : token < other.token;
  }
};

class SearchDecoder : public BeamDecoder {
 public:
  SearchDecoder(const DecodingParams& params, bool certified)
      : state_(params),
        row_(params, /*for_draws=*/false),
        certified_(certified),
        noisy_(params.kind == DecodingKind::kBeamSamplingWithoutReplacement),
        beams_{Beam{}} {
    PublishRoots();
  }

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override { return root_paths_; }
  DraftState draft_state() const override;
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(beams_); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

 private:
  size_t width() const { return state_.params().beam_width; }
  // No child of the beam has a larger key.
  double KeyBound(const Beam& beam) const {
    return noisy_ ? BeamKey(state_.params().seed, state_.paths().hash(beam.path), beam.log_score)
                  : beam.log_score;
  }
  void AddCandidates(int beam, double bound, RowSource* rows);
  // Key of the W-th best candidate that does not end; -inf when there are fewer.
  double WidthThKey() const { return best_keys_.size() < width() ? kNothing : best_keys_.front(); }
  void AddKey(double key);
  void RankCandidates(double* below);
  bool DecideLayer(RowSource* rows, RoundLedger* ledger);
  void Walk(RoundLedger* ledger, std::vector<Beam>* next, std::vector<LayerOutput>* outputs);
  void PublishRoots();

  SequenceState state_;
  WarpedRow row_;
  bool certified_;
  bool noisy_;
  std::vector<Beam> beams_;  // current beams in rank order
  std::vector<PathId> root_paths_;
  std::vector<Candidate> candidates_;
  std::vector<double> best_keys_;  // the W largest keys of candidates that do not end, as a heap
  std::vector<WarpedRow::Candidate> entries_;
};

DraftState SearchDecoder::draft_state() const {
  DraftState state;
  for (const Beam& beam : beams_) {
    state.root_hash.push_back(state_.paths().hash(beam.path));
    state.root_score.push_back(beam.log_score);
    state.root_multiplicity.push_back(1);
  }
  state.layers_committed = state_.layers();
  return state;
}

void SearchDecoder::PublishRoots() {
  root_paths_.clear();
  for (const Beam& beam : beams_) root_paths_.push_back(beam.path);
}

// The children of one beam that the walk can reach: its best W and the stop ids among and beside
// them.
void SearchDecoder::AddCandidates(int b, double bound, RowSource* rows) {
  const Beam& beam = beams_[b];
  const size_t reach = width() + state_.params().stop_ids.size();
  row_.Read(rows, beam.row, state_.layers());
  const size_t first = candidates_.size();
  if (!noisy_) {
    row_.TopCandidates(reach, &entries_);
    for (const WarpedRow::Candidate& entry : entries_) {
      candidates_.push_back(
          {beam.log_score + entry.log_prob, b, entry.token, beam.log_score + entry.score_log_prob});
    }
  } else {
    const Distribution whole = row_.whole() ? row_.Materialise().row : Distribution();
    const Distribution& row = row_.whole() ? whole : row_.sparse();
    const std::vector<double> keys =
        ChildKeys(state_.params().seed, state_.paths().hash(beam.path), beam.log_score, bound,
                  row.tokens, row.log_probs, reach);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == kNothing) continue;
      candidates_.push_back(
          {keys[i], b, row.tokens[i], beam.log_score + row_.Find(row.tokens[i]).score_log_prob});
    }
  }
  if (candidates_.size() > first + reach) {
    std::nth_element(candidates_.begin() + first, candidates_.begin() + first + reach,
                     candidates_.end());
    candidates_.resize(first + reach);
  }
  for (size_t i = first; i < candidates_.size(); ++i) {
    if (!state_.is_stop(candidates_[i].token)) AddKey(candidates_[i].key);
  }
}

void SearchDecoder::AddKey(double key) {
  if (best_keys_.size() == width()) {
    if (!(key > best_keys_.front())) return;
    std::pop_heap(best_keys_.begin(), best_keys_.end(), std::greater<>());
    best_keys_.pop_back();
  }
  best_keys_.push_back(key);
  std::push_heap(best_keys_.begin(), best_keys_.end(), std::greater<>());
}

// Sorts the candidates that the walk can reach and drops the others: those below the W-th that does
// not end. *below = the best key among the dropped.
void SearchDecoder::RankCandidates(double* below) {
  const double least = WidthThKey();
  const auto end = std::partition(candidates_.begin(), candidates_.end(),
                                  [least](const Candidate& c) { return c.key >= least; });
  *below = kNothing;
  for (auto dropped = end; dropped != candidates_.end(); ++dropped) {
    *below = std::max(*below, dropped->key);
  }
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end());
}

// docs/algorithms.md 8: rank counts all candidates; an end of rank below W is an output, the others
// fill the next beams.
void SearchDecoder::Walk(RoundLedger* ledger, std::vector<Beam>* next,
                         std::vector<LayerOutput>* outputs) {
  double below;
  RankCandidates(&below);
  for (size_t rank = 0; rank < candidates_.size() && next->size() < width(); ++rank) {
    const Candidate& candidate = candidates_[rank];
    const bool ends = state_.is_stop(candidate.token);
    if (ends && rank >= width()) continue;
    const Beam child = ledger->Extend(&state_.paths(), beams_[candidate.beam], candidate.token,
                                      candidate.log_score);
    outputs->push_back({child.path, child.log_score, ends});
    if (!ends) next->push_back(child);
    if (next->size() == width()) {
      ledger->AddMargin(candidate.key -
                        (rank + 1 < candidates_.size() ? candidates_[rank + 1].key : below));
    }
  }
}

// False when the known rows do not decide the layer. Beams are read by decreasing bound, and one
// whose bound is below the W-th candidate is not read at all; a beam without a row stops the layer
// unless that certificate covers it.
bool SearchDecoder::DecideLayer(RowSource* rows, RoundLedger* ledger) {
  std::vector<double> bound(beams_.size());
  std::vector<int> order(beams_.size());
  double missing = kNothing;
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
  double wth = kNothing;
  for (int b : order) {
    if (beams_[b].row < 0) continue;
    if (wth > kNothing && bound[b] < wth) break;
    AddCandidates(b, bound[b], rows);
    wth = WidthThKey();
  }
  if (missing > kNothing && !(wth > missing)) return false;
  std::vector<Beam> next;
  std::vector<LayerOutput> outputs;
  Walk(ledger, &next, &outputs);
  ledger->AddLayer();
  beams_ = state_.EndLayer(std::move(outputs)) ? std::move(next) : std::vector<Beam>();
  return true;
}

Verdict SearchDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  RoundLedger ledger(forest, beams_.size());
  for (size_t b = 0; b < beams_.size(); ++b) {
    beams_[b].row = static_cast<int>(b);
    beams_[b].parent_row = -1;
  }
  while (!state_.finished() && DecideLayer(rows, &ledger)) {
  }
  PublishRoots();
  return std::move(ledger).Finish(beams_);
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeSearchDecoder(const DecodingParams& params, bool certified) {
  return std::make_unique<SearchDecoder>(params, certified);
}

}  // namespace coppice
