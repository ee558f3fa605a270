// A group of the beams of a search, and how it decides its next layer (docs/algorithms.md 3.5, 5.8,
// 5.9, 8.2). Without groups: all beams. Owned by search_decoder. Thread-compatible.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/seeded/hierarchical_gumbel.h"
#include "decoding/seeded/largest_keys.h"
#include "decoding/seeded/taken_tokens.h"
#include "decoding/sequence/sequence_state.h"
#include "sampling/deterministic_math.h"
#include "sampling/processed_row.h"
#include "sampling/ranked_row.h"

namespace coppice::decoding {

class SearchGroup {
 public:
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

  // A row that is being read, and the children that it lists.
  struct Reading {
    explicit Reading(const DecodingParams& params) : row(params, /*for_draws=*/false) {}
    sampling::ProcessedRow row;
    std::vector<sampling::ProcessedRow::Candidate> entries;
    sampling::RankedTokens ranked;
    std::vector<Candidate> candidates;
    bool whole = false;  // no other child of the row has a key of at least live_keys_.Next()
  };
  using Readings = std::vector<std::unique_ptr<Reading>>;  // of the rows that are read together

  // *state and *readings, which groups share, must outlive the group.
  SearchGroup(const SequenceState* state, Readings* readings, int number, bool certified)
      : state_(state),
        readings_(*readings),
        number_(number),
        certified_(certified),
        noisy_(params().kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement),
        beams_{Beam{}},
        keys_(width()),
        live_keys_(width()) {}

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
  std::vector<bool> is_read_;  // [beams] of this layer; its candidates are known
  // Of the candidates of this layer, and of those that do not end.
  LargestKeys keys_, live_keys_;
};

}  // namespace coppice::decoding
