#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "decoding/seeded/search.h"
#include "decoding/seeded/search_group.h"
#include "decoding/seeded/taken_tokens.h"
#include "decoding/sequence/sequence_decoder.h"

namespace coppice::decoding {
namespace {

// docs/algorithms.md 8.4: the other hypotheses stay the same if beams that cannot reach min_score
// are dropped. Let b be such a beam after layer L, and let a candidate of layer L + 1 rank behind a
// child of b. Ranks are those of ls, so its ls is at most that of the child, and at most ls(b). No
// score of it or of a continuation is above Bound(ls(b), L), which is below min_score, whatever the
// sign of alpha: Bound grows with ls, and it is the largest score of all lengths from L + 1 on. So
// all that the children of b keep out of the beams, or out of the ranks of ends, cannot be returned
// either. This needs ranks by ls (no noise, no scope that adds up something else), one group, and
// policy EXACT, because FIRST counts all hypotheses that end.
bool DropsHopeless(const DecodingParams& params) {
  return params.min_score > kEveryScore && !params.stop_when_full &&
         params.kind == sampling::DecodingKind::kBeamSearch &&
         params.sampling.mode == sampling::SamplingScope::kRow && params.num_beam_groups == 1;
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
  SearchGroup::Readings readings_;
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

// The layers of a round use the best W children of each row and all stop ids. A token that was
// taken can lose its place to another one, so a group needs as many more than its own beams as the
// groups before it have beams: at most W.
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
  for (const SearchGroup::Candidate& child : all.KeptChildren())
    state.known_children.push_back({child.beam, child.token, child.log_score, child.key});
  return state;
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeSearchDecoder(const DecodingParams& params, bool certified) {
  return std::make_unique<SearchDecoder>(params, certified);
}

}  // namespace coppice::decoding
