#include "decoding/lossy/mjgd.h"

#include <algorithm>
#include <utility>

#include "decoding/lossy/path_decoder.h"
#include "decoding/sequence/sequence_decoder.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {
namespace {

class MjgdDecoder : public SequenceDecoder {
 public:
  explicit MjgdDecoder(const DecodingParams& params)
      : SequenceDecoder(params), row_(LikelihoodParams(params), /*for_draws=*/false), live_(1) {}

  std::vector<TokenId> StablePrefix() const override;

 private:
  struct Path {
    Beam beam;
    double likelihood = 0;  // log p of the window's tokens, nats
  };
  struct Candidate {
    double likelihood;
    size_t parent;  // index into live_
    TokenId token;
    double log_score;
  };

  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) override;
  std::vector<Beam> LiveBeams() const override;
  RowUse row_use() const override {
    return {RowUse::Kind::kRanks, static_cast<int>(reach()), /*likelihood=*/true};
  }
  size_t reach() const { return params().draft_beams + params().stop_ids.size(); }
  void ListEntries(PathId path, std::vector<sampling::ProcessedRow::Candidate>* entries) const;
  std::vector<Candidate> ListCandidates(sampling::RowSource* rows);
  void Step(sampling::RowSource* rows, RoundLedger* ledger);
  bool WindowCloses() const;
  void Choose();
  // True if `a` comes before `b` in the choice of the window.
  bool Better(const Path& a, const Path& b) const;

  sampling::ProcessedRow row_;
  std::vector<Path> live_;   // beams of the open window, best first
  std::vector<Path> ended_;  // paths of the open window that have ended
  int steps_ = 0;            // tokens of the open window
};

std::vector<Beam> MjgdDecoder::LiveBeams() const {
  std::vector<Beam> beams;
  beams.reserve(live_.size());
  for (const Path& path : live_) beams.push_back(path.beam);
  return beams;
}

std::vector<TokenId> MjgdDecoder::StablePrefix() const {
  std::vector<Beam> contenders = LiveBeams();
  for (const Path& path : ended_) contenders.push_back(path.beam);
  return state().StablePrefix(contenders);
}

bool MjgdDecoder::Better(const Path& a, const Path& b) const {
  if (a.likelihood != b.likelihood) return a.likelihood > b.likelihood;
  return paths().Tokens(a.beam.path) < paths().Tokens(b.beam.path);
}

// The entries of the row after `path` that the walk can reach: M that do not end, and all better.
void MjgdDecoder::ListEntries(PathId path,
                              std::vector<sampling::ProcessedRow::Candidate>* entries) const {
  for (size_t count = reach();; count *= 4) {
    row_.TopCandidates(count, entries);
    if (!state().ends_by_text() || count >= static_cast<size_t>(row_.entries())) return;
    const auto live = std::count_if(entries->begin(), entries->end(),
                                    [&](const sampling::ProcessedRow::Candidate& entry) {
                                      return !state().Ends(path, entry.token);
                                    });
    if (live >= params().draft_beams) return;
  }
}

// The continuations of the live beams that the walk can reach, best first, ties in canonical order.
std::vector<MjgdDecoder::Candidate> MjgdDecoder::ListCandidates(sampling::RowSource* rows) {
  std::vector<Candidate> candidates;
  std::vector<sampling::ProcessedRow::Candidate> entries;
  for (size_t b = 0; b < live_.size(); ++b) {
    row_.Read(rows, live_[b].beam.row, state().RowPathOf(live_[b].beam.path));
    ListEntries(live_[b].beam.path, &entries);
    for (const sampling::ProcessedRow::Candidate& entry : entries) {
      candidates.push_back({live_[b].likelihood + entry.log_prob, b, entry.token,
                            live_[b].beam.log_score + entry.score_log_prob});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.likelihood != b.likelihood) return a.likelihood > b.likelihood;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  });
  return candidates;
}

// Extends every beam by one token, by the walk of docs/algorithms.md 8. An end counts only if it is
// among the M best. The other candidates fill the M beams.
void MjgdDecoder::Step(sampling::RowSource* rows, RoundLedger* ledger) {
  const size_t width = static_cast<size_t>(params().draft_beams);
  const std::vector<Candidate> candidates = ListCandidates(rows);
  std::vector<Path> live;
  for (size_t rank = 0; rank < candidates.size() && live.size() < width; ++rank) {
    const Candidate& candidate = candidates[rank];
    const bool ends = state().Ends(live_[candidate.parent].beam.path, candidate.token);
    if (ends && rank >= width) continue;
    const Beam child = ledger->Extend(&mutable_state()->paths(), live_[candidate.parent].beam,
                                      candidate.token, candidate.log_score);
    (ends ? ended_ : live).push_back({child, candidate.likelihood});
  }
  ledger->AddLayer();
  live_ = std::move(live);
  ++steps_;
  if (WindowCloses()) Choose();
  const Beam& best = live_[0].beam;
  const bool ends = state().Ends(paths().parent(best.path), paths().token(best.path));
  if (!mutable_state()->EndLayer({{best.path, best.log_score, ends}})) live_.clear();
}

// True after g tokens, at max_tokens, or if no beam can become better than a path that has ended.
bool MjgdDecoder::WindowCloses() const {
  if (live_.empty() || steps_ == params().joint_tokens) return true;
  if (state().layers() + 1 == params().max_tokens) return true;
  return std::any_of(ended_.begin(), ended_.end(),
                     [this](const Path& path) { return path.likelihood > live_[0].likelihood; });
}

// Keeps only the window's best path.
void MjgdDecoder::Choose() {
  live_.insert(live_.end(), ended_.begin(), ended_.end());
  const auto better = [this](const Path& a, const Path& b) { return Better(a, b); };
  live_ = {Path{std::min_element(live_.begin(), live_.end(), better)->beam}};
  ended_.clear();
  steps_ = 0;
}

void MjgdDecoder::Decide(const DraftForest&, sampling::RowSource* rows, RoundLedger* ledger) {
  for (size_t b = 0; b < live_.size(); ++b) live_[b].beam.BecomeRoot(b);
  const auto known = [](const Path& path) { return path.beam.row >= 0; };
  while (!finished() && std::all_of(live_.begin(), live_.end(), known)) Step(rows, ledger);
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeMjgdDecoder(const DecodingParams& params) {
  return std::make_unique<MjgdDecoder>(params);
}

}  // namespace coppice::decoding
