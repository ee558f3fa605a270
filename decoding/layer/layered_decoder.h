// Decoder of the methods that verify joint layers by rejection (docs/algorithms.md 5.1-5.5): the
// distribution of each layer, its drafts from the forest, beams, pool and statistics. The layer
// rule (decoding/layer/layer_rule.h) decides each layer. The output depends not only on the seed
// but also on where rounds begin. Drafts come from decoding/layer/layered_drafter.h. Made by
// decoding/layer/dsbd.cc, dsbd_single_kv.cc and dsbd_wor.cc. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/joint/choice_source.h"
#include "decoding/joint/draft_proposals.h"
#include "decoding/layer/layer_rule.h"
#include "decoding/sequence/layer_beams.h"
#include "decoding/sequence/layer_ends.h"
#include "decoding/sequence/sequence_decoder.h"

namespace coppice::decoding {

// One decided layer of a round, kept until the next round for tests and golden files.
struct LayerRecord {
  std::vector<PathId> beams;         // the layer's current beams, canonical order
  std::vector<int> multiplicity;     // [beams]
  std::vector<LayerOutput> outputs;  // slot order
  std::vector<int> accepted_draft;   // [outputs] index among the layer's draws, or -1
  bool verified = false;             // false: drawn without drafts
  bool full = false;                 // verified, and the next layer may be too
};

// What survives a round.
enum class KeptBeams {
  kAll,
  kBest,  // DSBD single KV (5.4): only the beam of largest ls, ties: lowest slot
};

class LayeredDecoder : public SequenceDecoder {
 public:
  // A forest that fails CheckSentDraws(forest, drafts) is ignored, and the round is plain.
  // `choices` makes the random decisions (SeededChoices in production).
  LayeredDecoder(const DecodingParams& params, std::unique_ptr<LayerRule> rule, DrawKind drafts,
                 std::shared_ptr<ChoiceSource> choices, KeptBeams kept = KeptBeams::kAll);

  // Call before the first round: starts from given slots instead of the prompt (exact
  // distributions, golden files). All paths have the same length, the number of layers committed.
  struct StartSlot {
    std::vector<TokenId> tokens;
    double log_score = 0;
  };
  void StartFrom(absl::Span<const StartSlot> slots);

  DraftState draft_state() const override { return beams_.State(paths(), state().layers()); }
  absl::Span<const LayerRecord> last_round() const { return round_; }

 private:
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) override;
  std::vector<Beam> LiveBeams() const override { return beams_.beams(); }
  LayerResult VerifyLayer(const DraftForest& forest, const ProposalIndex& proposals, int layer,
                          const LayerDistribution& p);
  void CommitLayer(const LayerResult& result, RoundLedger* ledger);
  LayerEnds Ends() const { return {&state(), beams_.paths()}; }  // ends of the current beams
  void KeepBestBeam();
  int Width() const;

  const std::unique_ptr<LayerRule> rule_;
  const DrawKind drafts_;
  const std::shared_ptr<ChoiceSource> choices_;
  const KeptBeams kept_;
  LayerBeams beams_;
  std::vector<LayerRecord> round_;
  int ended_slots_ = 0;  // slots that have ended and are not refilled
};

}  // namespace coppice::decoding
