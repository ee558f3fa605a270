#include "decoding/dsbd.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deterministic_math.h"
#include "decoding/target_row.h"

namespace coppice {
namespace {

const Proposal* FindProposal(const DraftForest& forest, int32_t node) {
  for (const Proposal& proposal : forest.proposals) {
    if (proposal.node == node) return &proposal;
  }
  return nullptr;
}

// Node of a row in the numbering of Proposal: -1 - root for a root.
int32_t NodeOfRow(const DraftForest& forest, int row) {
  return row < forest.num_roots ? -1 - row : row - forest.num_roots;
}

absl::Status CheckLayer(const DraftForest& forest, int layer) {
  const int32_t begin = layer == 0 ? -forest.num_roots : forest.layer_begin[layer - 1];
  const int32_t end = layer == 0 ? 0 : forest.layer_begin[layer];
  double weight = 0;
  for (const Proposal& proposal : forest.proposals) {
    if (proposal.node >= begin && proposal.node < end) weight += Exp(proposal.log_weight);
  }
  if (!(std::abs(weight - 1) <= 1e-9)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dsbd: proposal weights of layer ", layer, " sum to ", weight, ", want 1"));
  }
  for (int32_t i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = forest.draws[i];
    const Proposal* proposal = FindProposal(forest, forest.parent[node]);
    if (proposal == nullptr || FindToken(proposal->row, forest.token[node]) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("dsbd: draft node ", node, " was drawn from no proposal that was shipped"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

WidthRule DsbdWidthRule(const DecodingParams& params) {
  const int automatic = AutoDraftWidth(params.beam_width);
  const int draft_width = params.draft_width > 0 ? params.draft_width : automatic;
  return {params.beam_width, params.width_threshold, params.min_width,
          std::max(params.min_width, draft_width)};
}

absl::Status CheckDsbdForest(const DraftForest& forest) {
  if (forest.draws_begin.size() != forest.layer_begin.size()) {
    return absl::InvalidArgumentError("dsbd: draft forest does not list its draws");
  }
  for (int layer = 0; layer < forest.depth(); ++layer) {
    if (absl::Status status = CheckLayer(forest, layer); !status.ok()) return status;
  }
  return absl::OkStatus();
}

DsbdDecoder::DsbdDecoder(const DecodingParams& params, RemovedParents rule,
                         std::shared_ptr<ChoiceSource> choices)
    : state_(params), rule_(rule), choices_(std::move(choices)) {
  SetBeams({Beam{}}, state_.last_layer());
}

void DsbdDecoder::StartFrom(absl::Span<const StartSlot> slots) {
  COPPICE_CHECK(state_.layers() == 0 && !slots.empty());
  std::vector<Beam> beams;
  std::vector<LayerOutput> outputs;
  for (const StartSlot& slot : slots) {
    Beam beam;
    for (TokenId token : slot.tokens) beam.path = state_.paths().Extend(beam.path, token);
    beam.log_score = slot.log_score;
    beams.push_back(beam);
    outputs.push_back({beam.path, beam.log_score, false});
  }
  state_.StartFrom(outputs, static_cast<int>(slots[0].tokens.size()));
  SetBeams(beams, outputs);
}

DraftState DsbdDecoder::draft_state() const {
  DraftState state;
  for (int b = 0; b < beams_.size(); ++b) {
    state.root_hash.push_back(state_.paths().hash(beams_[b].path));
    state.root_score.push_back(beams_[b].log_score);
    state.root_multiplicity.push_back(multiplicity_[b]);
  }
  state.layers_committed = static_cast<uint32_t>(state_.layers());
  return state;
}

int DsbdDecoder::RequestWidth() const {
  return std::max(1, state_.params().beam_width - ended_slots_);
}

// Merges equal paths (multiset semantics of 3.3); paths that ended are no beams.
void DsbdDecoder::SetBeams(absl::Span<const Beam> slots, absl::Span<const LayerOutput> outputs) {
  beams_.clear();
  multiplicity_.clear();
  roots_.clear();
  for (int w = 0; w < slots.size(); ++w) {
    if (outputs[w].finished) continue;
    const auto same = std::find(roots_.begin(), roots_.end(), slots[w].path);
    if (same != roots_.end()) {
      ++multiplicity_[same - roots_.begin()];
      continue;
    }
    beams_.push_back(slots[w]);
    multiplicity_.push_back(1);
    roots_.push_back(slots[w].path);
  }
}

// P of the layer; it refers to rows_.
LayerLaw DsbdDecoder::ReadLayer(RowSource* rows) {
  std::vector<LawBeam> law;
  for (int b = 0; b < beams_.size(); ++b) {
    if (b == rows_.size()) rows_.push_back(std::make_unique<WarpedRow>(state_.params()));
    rows_[b]->Read(rows, beams_[b].row, state_.layers());
    law.push_back({state_.paths().hash(beams_[b].path), beams_[b].log_score, multiplicity_[b],
                   nullptr, rows_[b].get()});
  }
  return MakeLayerLaw(law);
}

DsbdLayerResult DsbdDecoder::VerifyLayer(const DraftForest& forest, int layer, const LayerLaw& p) {
  LayerLaw q;
  for (int b = 0; b < beams_.size(); ++b) {
    WeightedRow row;
    row.hash = p.rows[b].hash;
    if (const Proposal* proposal = FindProposal(forest, NodeOfRow(forest, beams_[b].row))) {
      row.log_weight = proposal->log_weight;
      row.sparse = &proposal->row;
    }
    q.rows.push_back(std::move(row));
  }
  std::vector<Entry> drafts;
  for (int32_t i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = forest.draws[i];
    const auto parent = std::find_if(beams_.begin(), beams_.end(), [&](const Beam& beam) {
      return NodeOfRow(forest, beam.row) == forest.parent[node];
    });
    const int beam = parent == beams_.end() ? -1 : static_cast<int>(parent - beams_.begin());
    drafts.push_back({beam, forest.token[node]});
  }
  WidthRule width = DsbdWidthRule(state_.params());
  width.fixed = RequestWidth();
  width.maximum = std::max(1, width.maximum - ended_slots_);
  width.minimum = std::min(width.minimum, width.maximum);
  return VerifyDsbdLayer({&p, &q, drafts, rule_, width}, choices_.get());
}

void DsbdDecoder::CommitLayer(const DsbdLayerResult& result, RoundLedger* ledger) {
  DsbdLayerRecord record;
  record.beams = roots_;
  record.multiplicity = multiplicity_;
  record.full = result.full;
  std::vector<Beam> slots;
  for (const DsbdOutput& output : result.outputs) {
    const Beam& beam = beams_[output.entry.beam];
    const TokenId token = output.entry.token;
    const double score = beam.log_score + rows_[output.entry.beam]->Find(token).score_log_prob;
    slots.push_back(ledger->Extend(&state_.paths(), beam, token, score));
    record.outputs.push_back({slots.back().path, score, state_.is_stop(token)});
    record.accepted_draft.push_back(output.draft);
    if (record.outputs.back().finished && !state_.params().refill) ++ended_slots_;
  }
  ledger->AddMargin(result.min_margin);
  ledger->AddLayer();
  const bool goes_on = state_.EndLayer(record.outputs);
  SetBeams(goes_on ? absl::MakeSpan(slots) : absl::Span<Beam>(), record.outputs);
  round_.push_back(std::move(record));
}

Verdict DsbdDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  COPPICE_CHECK(!finished());
  RoundLedger ledger(forest, roots_.size());
  choices_->BeginRound(static_cast<uint64_t>(state_.layers()));
  for (int r = 0; r < beams_.size(); ++r) {
    beams_[r].row = r;
    beams_[r].parent_row = -1;
  }
  round_.clear();
  const int depth = CheckDsbdForest(forest).ok() ? forest.depth() : 0;
  bool go_on = true;
  for (int layer = 0; go_on; ++layer) {
    const LayerLaw p = ReadLayer(rows);
    const bool verify = layer < depth;
    const DsbdLayerResult result =
        verify ? VerifyLayer(forest, layer, p) : DrawLayer(p, RequestWidth(), choices_.get());
    if (verify) ledger.AddOverlap(result.overlap);
    CommitLayer(result, &ledger);
    round_.back().verified = verify;
    go_on = verify && result.full && !finished();
  }
  return std::move(ledger).Finish(beams_);
}

std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params) {
  return std::make_unique<DsbdDecoder>(params, RemovedParents::kReject,
                                       std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice
