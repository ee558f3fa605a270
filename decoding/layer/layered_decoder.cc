#include "decoding/layer/layered_decoder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace coppice::decoding {

LayeredDecoder::LayeredDecoder(const DecodingParams& params, std::unique_ptr<LayerRule> rule,
                               DrawKind drafts, std::shared_ptr<ChoiceSource> choices,
                               KeptBeams kept)
    : SequenceDecoder(params),
      rule_(std::move(rule)),
      drafts_(drafts),
      choices_(std::move(choices)),
      kept_(kept),
      beams_(params) {}

void LayeredDecoder::StartFrom(absl::Span<const StartSlot> slots) {
  COPPICE_CHECK(!slots.empty());
  std::vector<Beam> beams;
  std::vector<LayerOutput> outputs;
  for (const StartSlot& slot : slots) {
    Beam beam;
    for (TokenId token : slot.tokens) beam.path = mutable_state()->paths().Extend(beam.path, token);
    beam.log_score = slot.log_score;
    beams.push_back(beam);
    outputs.push_back({beam.path, beam.log_score, false});
  }
  beams_.Set(beams);
  ContinueFrom(std::move(outputs), static_cast<int>(slots[0].tokens.size()));
}

int LayeredDecoder::Width() const { return std::max(1, params().beam_width - ended_slots_); }

// All beams have the same length, so the beam of lowest perplexity is the one with the largest ls.
void LayeredDecoder::KeepBestBeam() {
  if (beams_.beams().empty()) return;
  const Beam best =
      *std::max_element(beams_.beams().begin(), beams_.beams().end(),
                        [](const Beam& a, const Beam& b) { return a.log_score < b.log_score; });
  beams_.Set({best});
}

LayerResult LayeredDecoder::VerifyLayer(const DraftForest& forest, const ProposalIndex& proposals,
                                        int layer, const LayerDistribution& p) {
  const int begin = ParentRowsBegin(forest, layer), end = ParentRowsEnd(forest, layer);
  LayerDistribution q;
  std::vector<int> place(end - begin, -1);  // [parents] index of the row in q, or -1
  const auto add = [&](int row, uint64_t hash) {
    place[row - begin] = static_cast<int>(q.rows.size());
    WeightedRow weighted;
    weighted.hash = hash;
    if (const Proposal* proposal = proposals.Find(row)) {
      weighted.log_weight = proposal->log_weight;
      weighted.sparse = &proposal->row;
    }
    q.rows.push_back(std::move(weighted));
  };
  for (int b = 0; b < p.rows.size(); ++b) add(beams_.beams()[b].row, p.rows[b].hash);
  for (int row = begin; row < end; ++row) {
    if (place[row - begin] < 0 && proposals.Find(row) != nullptr) add(row, 0);
  }
  std::vector<Entry> drafts;
  for (int32_t i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = Index(forest.draws[i]);
    drafts.push_back({place[forest.RowOf(forest.parent[node]) - begin], forest.token[node]});
  }
  return rule_->Verify({&p, &q, drafts, Width(), ended_slots_, Ends()}, choices_.get());
}

void LayeredDecoder::CommitLayer(const LayerResult& result, RoundLedger* ledger) {
  const bool slots_go = params().kind == sampling::DecodingKind::kBeamSampling && !params().refill;
  LayerRecord record;
  record.beams.assign(beams_.paths().begin(), beams_.paths().end());
  record.multiplicity = draft_state().root_multiplicity;
  record.full = result.full;
  std::vector<Beam> live;
  for (const RuleOutput& output : result.outputs) {
    const Beam& beam = beams_.beams()[output.entry.beam];
    const Beam slot = ledger->Extend(&mutable_state()->paths(), beam, output.entry.token,
                                     beam.log_score + beams_.ScoreLogProb(output.entry));
    const bool ends = state().Ends(beam.path, output.entry.token);
    record.outputs.push_back({slot.path, slot.log_score, ends});
    record.accepted_draft.push_back(output.draft);
    if (!ends) {
      live.push_back(slot);
    } else if (slots_go) {
      ++ended_slots_;
    }
  }
  ledger->AddMargin(result.min_margin);
  ledger->AddLayer();
  if (!mutable_state()->EndLayer(record.outputs)) live.clear();
  beams_.Set(live);
  round_.push_back(std::move(record));
}

void LayeredDecoder::Decide(const DraftForest& forest, sampling::RowSource* rows,
                            RoundLedger* ledger) {
  choices_->BeginRound(static_cast<uint64_t>(state().layers()));
  beams_.BeginRound();
  round_.clear();
  const int depth = CheckSentDraws(forest, drafts_).ok() ? forest.depth() : 0;
  const ProposalIndex proposals(forest);
  bool go_on = true;
  for (int layer = 0; go_on; ++layer) {
    const LayerDistribution p = beams_.Read(rows, paths());
    const bool verify = layer < depth;
    const LayerResult result = verify ? VerifyLayer(forest, proposals, layer, p)
                                      : rule_->Draw(p, Width(), Ends(), choices_.get());
    if (verify) ledger->AddOverlap(result.overlap);
    CommitLayer(result, ledger);
    round_.back().verified = verify;
    go_on = verify && result.full && !finished();
  }
  beams_.EndRound();
  if (kept_ == KeptBeams::kBest) KeepBestBeam();
}

}  // namespace coppice::decoding
