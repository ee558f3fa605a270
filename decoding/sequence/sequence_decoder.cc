#include "decoding/sequence/sequence_decoder.h"

#include <utility>

#include "base/check.h"

namespace coppice::decoding {

DraftState SequenceDecoder::draft_state() const {
  DraftState draft;
  for (const Beam& beam : LiveBeams()) {
    draft.root_hash.push_back(paths().hash(beam.path));
    draft.root_score.push_back(beam.log_score);
    draft.root_multiplicity.push_back(1);
    draft.root_format_state.push_back(paths().format_state(beam.path));
  }
  draft.layers_committed = static_cast<uint32_t>(state_.layers());
  return draft;
}

Verdict SequenceDecoder::Advance(const DraftForest& forest, sampling::RowSource* rows) {
  COPPICE_CHECK(!finished());
  RoundLedger ledger(forest, roots_.size(), params().beam_width);
  Decide(forest, rows, &ledger);
  const std::vector<Beam> beams = finished() ? std::vector<Beam>() : LiveBeams();
  PublishRoots(beams);
  return std::move(ledger).Finish(beams);
}

void SequenceDecoder::ContinueFrom(std::vector<LayerOutput> slots, int layers) {
  state_.StartFrom(std::move(slots), layers);
  PublishRoots(LiveBeams());
}

void SequenceDecoder::PublishRoots(absl::Span<const Beam> beams) {
  roots_.clear();
  for (const Beam& beam : beams) roots_.push_back(beam.path);
}

}  // namespace coppice::decoding
