#include "decoding/dsbd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deterministic_math.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Proposal* FindProposal(const DraftForest& forest, int32_t node) {
  for (const Proposal& proposal : forest.proposals) {
    if (proposal.node == node) return &proposal;
  }
  return nullptr;
}

// The node of `layer` that is the child of `parent` by `token`, or -1: no node.
int32_t FindChild(const DraftForest& forest, int layer, int32_t parent, TokenId token) {
  if (layer >= forest.depth()) return -1;
  for (int32_t i = forest.layer_begin[layer]; i < forest.layer_begin[layer + 1]; ++i) {
    if (forest.parent[i] == parent && forest.token[i] == token) return i;
  }
  return -1;
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
  const int automatic = params.beam_width == 1 ? 4 : 2 * params.beam_width;
  const int draft_width = params.draft_width > 0 ? params.draft_width : automatic;
  return {params.beam_width, params.width_threshold, params.min_width, std::max(params.min_width, draft_width)};
}

absl::Status CheckDsbdForest(const DraftForest& forest, int num_roots) {
  if (forest.num_roots != num_roots) {
    return absl::InvalidArgumentError(
        absl::StrCat("dsbd: draft forest has ", forest.num_roots, " roots, want ", num_roots));
  }
  if (forest.draws_begin.size() != forest.layer_begin.size()) {
    return absl::InvalidArgumentError("dsbd: draft forest does not list its draws");
  }
  for (int layer = 0; layer < forest.depth(); ++layer) {
    if (absl::Status status = CheckLayer(forest, layer); !status.ok()) return status;
  }
  return absl::OkStatus();
}

struct DsbdDecoder::LayerRows {
  std::vector<TargetRow> rows;  // [beams]
  LayerLaw p;                   // refers to rows
};

DsbdDecoder::DsbdDecoder(const DecodingParams& params, RemovedParents rule, std::shared_ptr<ChoiceSource> choices)
    : params_(params), rule_(rule), choices_(std::move(choices)), pool_(params) {
  last_layer_ = {{kRootPath, 0.0, false}};
  SetBeams(last_layer_, {});
}

void DsbdDecoder::StartFrom(absl::Span<const StartSlot> slots) {
  COPPICE_CHECK(layers_ == 0 && !slots.empty());
  last_layer_.clear();
  for (const StartSlot& slot : slots) {
    PathId path = kRootPath;
    for (TokenId token : slot.tokens) path = paths_.Extend(path, token);
    last_layer_.push_back({path, slot.log_score, false});
  }
  layers_ = static_cast<int>(slots[0].tokens.size());
  SetBeams(last_layer_, {});
}

DraftState DsbdDecoder::draft_state() const {
  DraftState state;
  for (const Beam& beam : beams_) {
    state.root_hash.push_back(paths_.hash(beam.path));
    state.root_score.push_back(beam.score);
    state.root_multiplicity.push_back(beam.multiplicity);
  }
  state.layers_committed = static_cast<uint32_t>(layers_);
  return state;
}

int DsbdDecoder::max_useful_depth() const { return std::max(0, params_.max_tokens - 1 - layers_); }

int DsbdDecoder::RequestWidth() const { return std::max(1, params_.beam_width - ended_slots_); }

// Merges equal paths (multiset semantics of 3.3). nodes: [outputs] forest node of each output, or empty at a round's end.
void DsbdDecoder::SetBeams(absl::Span<const LayerOutput> outputs, absl::Span<const int32_t> nodes) {
  beams_.clear();
  roots_.clear();
  for (int slot = 0; slot < outputs.size(); ++slot) {
    const LayerOutput& output = outputs[slot];
    if (output.finished) continue;
    auto same = std::find(roots_.begin(), roots_.end(), output.path);
    if (same != roots_.end()) {
      ++beams_[same - roots_.begin()].multiplicity;
      continue;
    }
    const int32_t root = -1 - static_cast<int32_t>(roots_.size());
    beams_.push_back({output.path, output.log_score, 1, nodes.empty() ? root : nodes[slot]});
    roots_.push_back(output.path);
  }
}

DsbdDecoder::LayerRows DsbdDecoder::ReadLayer(const DraftForest& forest, RowSource* rows) const {
  LayerRows layer;
  layer.rows.reserve(beams_.size());
  std::vector<LawBeam> law;
  for (const Beam& beam : beams_) {
    const int row = beam.node < 0 ? -1 - beam.node : forest.num_roots + beam.node;
    layer.rows.push_back(ReadTargetRow(rows, row, params_, layers_));
    law.push_back({paths_.hash(beam.path), beam.score, beam.multiplicity, &layer.rows.back().row});
  }
  layer.p = MakeLayerLaw(law);
  return layer;
}

DsbdLayerResult DsbdDecoder::VerifyLayer(const DraftForest& forest, int layer, const LayerLaw& p) {
  LayerLaw q;
  for (const Beam& beam : beams_) {
    const Proposal* proposal = FindProposal(forest, beam.node);
    q.rows.push_back({paths_.hash(beam.path), proposal == nullptr ? 0.0 : proposal->log_weight,
                      proposal == nullptr ? nullptr : &proposal->row, {}, {}});
  }
  std::vector<Entry> drafts;
  for (int32_t i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = forest.draws[i];
    const auto parent = std::find_if(beams_.begin(), beams_.end(),
                                     [&](const Beam& beam) { return beam.node == forest.parent[node]; });
    drafts.push_back({parent == beams_.end() ? -1 : static_cast<int>(parent - beams_.begin()), forest.token[node]});
  }
  WidthRule width = DsbdWidthRule(params_);
  width.fixed = RequestWidth();
  width.maximum = std::max(1, width.maximum - ended_slots_);
  width.minimum = std::min(width.minimum, width.maximum);
  return VerifyDsbdLayer({&p, &q, drafts, rule_, width}, choices_.get());
}

void DsbdDecoder::CommitLayer(const DraftForest& forest, int layer, const LayerRows& rows,
                              const DsbdLayerResult& result, Verdict* verdict) {
  DsbdLayerRecord record;
  for (const Beam& beam : beams_) record.beams.push_back({beam.path, beam.multiplicity});
  std::vector<int32_t> nodes;
  int accepted = 0;
  for (const DsbdOutput& output : result.outputs) {
    const Beam& beam = beams_[output.entry.beam];
    const TargetRow& row = rows.rows[output.entry.beam];
    const int position = FindToken(row.row, output.entry.token);
    record.outputs.push_back({paths_.Extend(beam.path, output.entry.token),
                              beam.score + row.score_log_probs[position], IsStopId(params_, output.entry.token)});
    record.accepted_draft.push_back(output.draft);
    nodes.push_back(FindChild(forest, layer, beam.node, output.entry.token));
    if (nodes.back() >= 0 && verdict->node_path[nodes.back()] < 0) {
      verdict->node_path[nodes.back()] = record.outputs.back().path;
      ++accepted;
    }
  }
  RoundStats* stats = &verdict->stats;
  stats->accepted_nodes += accepted;
  if (layer < forest.depth()) stats->accepted_by_layer.push_back(accepted);
  stats->min_margin = std::min(stats->min_margin, result.min_margin);
  ++stats->layers;

  record.full = result.full;
  last_layer_ = record.outputs;
  round_.push_back(std::move(record));
  SetBeams(last_layer_, nodes);
  ++layers_;
  Conclude();
}

// Section 8, after every layer: stop ids to the pool; no active beam; the policy; max_tokens.
void DsbdDecoder::Conclude() {
  double best_active = -kInfinity;
  for (const LayerOutput& output : last_layer_) {
    if (output.finished) {
      pool_.Insert(paths_, output.path, output.log_score, /*finished=*/true);
      if (!params_.refill) ++ended_slots_;
    } else {
      best_active = std::max(best_active, pool_.Bound(output.log_score, layers_));
    }
  }
  if (beams_.empty() || pool_.PolicyStops(best_active)) {
    finished_ = true;
  } else if (layers_ >= params_.max_tokens) {
    for (const Beam& beam : beams_) pool_.Insert(paths_, beam.path, beam.score, /*finished=*/false);
    finished_ = true;
  }
  if (finished_) {
    beams_.clear();
    roots_.clear();
  }
}

Verdict DsbdDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  COPPICE_CHECK(!finished_);
  choices_->BeginRound(static_cast<uint64_t>(layers_));
  for (int r = 0; r < beams_.size(); ++r) beams_[r].node = -1 - r;
  const bool usable = forest.depth() > 0 && CheckDsbdForest(forest, static_cast<int>(roots_.size())).ok();
  const DraftForest none = DraftForest::Empty(static_cast<int>(roots_.size()));
  const DraftForest& draft = usable ? forest : none;

  Verdict verdict;
  verdict.node_path.assign(forest.size(), -1);
  verdict.stats.drafted_layers = draft.depth();
  verdict.stats.drafted_nodes = draft.size();
  verdict.stats.min_margin = kInfinity;
  round_.clear();
  for (int layer = 0; !finished_; ++layer) {
    const LayerRows layer_rows = ReadLayer(draft, rows);
    const bool verify = layer < draft.depth();
    const DsbdLayerResult result = verify ? VerifyLayer(draft, layer, layer_rows.p)
                                          : DrawLayer(layer_rows.p, RequestWidth(), choices_.get());
    if (verify) {
      verdict.stats.overlap_sum += result.overlap;
      ++verdict.stats.overlap_layers;
    }
    CommitLayer(draft, layer, layer_rows, result, &verdict);
    round_.back().verified = verify;
    if (!verify || !result.full) break;
  }
  KeepRootsAncestors(&verdict.node_path);
  return verdict;
}

// Of the nodes that became paths, only those on the way to a new root stay.
void DsbdDecoder::KeepRootsAncestors(std::vector<int32_t>* node_path) const {
  std::vector<PathId> kept;
  for (PathId path : roots_) {
    for (int up = 0; up < round_.size() && path >= 0; ++up, path = paths_.parent(path)) kept.push_back(path);
  }
  for (int32_t& path : *node_path) {
    if (std::find(kept.begin(), kept.end(), path) == kept.end()) path = -1;
  }
}

// What can still be ranked first: the pool's best, and active beams whose bound beats it.
std::vector<TokenId> DsbdDecoder::StablePrefix() const {
  std::vector<PathId> candidates;
  double best = -kInfinity;
  if (!pool_.entries().empty()) {
    candidates.push_back(pool_.entries()[0].path);
    best = pool_.entries()[0].score;
  }
  for (const Beam& beam : beams_) {
    if (pool_.Bound(beam.score, layers_) > best) candidates.push_back(beam.path);
  }
  return paths_.Tokens(paths_.CommonAncestor(candidates));
}

std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params) {
  return std::make_unique<DsbdDecoder>(params, RemovedParents::kReject, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice
