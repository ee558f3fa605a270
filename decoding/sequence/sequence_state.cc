#include "decoding/sequence/sequence_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {

SequenceState::SequenceState(const DecodingParams& params)
    : params_(params),
      paths_(params.format),
      pools_(params.num_beam_groups, HypothesisPool(params)),
      goes_on_(params.num_beam_groups, true),
      can_complete_(params.format != nullptr && params.format->has_complete_states()),
      last_layer_{LayerOutput{}} {}

void SequenceState::StartFrom(std::vector<LayerOutput> slots, int layers) {
  COPPICE_CHECK(layers_ == 0);
  last_layer_ = std::move(slots);
  layers_ = layers;
}

StopText::State SequenceState::TextOf(PathId path) const {
  text_of_path_.resize(paths_.size());
  std::vector<PathId> unknown;
  while (path != kRootPath && !text_of_path_[Index(path)]) {
    unknown.push_back(path);
    path = paths_.parent(path);
  }
  if (path == kRootPath) text_of_path_[Index(path)] = params_.stop_text->Start();
  for (; !unknown.empty(); unknown.pop_back()) {
    const PathId child = unknown.back();
    text_of_path_[Index(child)] =
        params_.stop_text->Next(*text_of_path_[Index(path)], paths_.token(child),
                                /*search=*/paths_.length(child) >= params_.min_tokens);
    path = child;
  }
  return *text_of_path_[Index(path)];
}

bool SequenceState::CompletesFormat(PathId path, absl::Span<const TokenId> more) const {
  OutputFormat::State state = paths_.format_state(path);
  for (const TokenId token : more) state = params_.format->Next(state, token);
  return params_.format->Complete(state);
}

bool SequenceState::Ends(PathId path, absl::Span<const TokenId> more) const {
  if (IsStopId(params_, more.back())) return true;
  if (can_complete_ && CompletesFormat(path, more)) return true;
  if (!has_stop_strings()) return false;
  StopText::State text = TextOf(path);
  int length = paths_.length(path);
  for (TokenId token : more) {
    text = params_.stop_text->Next(text, token, /*search=*/++length >= params_.min_tokens);
  }
  return params_.stop_text->Matched(text);
}

std::vector<TokenId> SequenceState::EndTokens(PathId path) const {
  std::vector<TokenId> tokens = params_.stop_ids;
  if (has_stop_strings() && paths_.length(path) + 1 >= params_.min_tokens) {
    const std::vector<TokenId> completing = params_.stop_text->Completing(TextOf(path));
    tokens.insert(tokens.end(), completing.begin(), completing.end());
  }
  if (can_complete_) {
    const auto allowed = params_.format->Allowed(paths_.format_state(path));
    const auto next = allowed == nullptr ? std::vector<TokenId>() : allowed->Tokens();
    for (const TokenId token : next) {
      if (CompletesFormat(path, absl::MakeConstSpan(&token, 1))) tokens.push_back(token);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

int SequenceState::max_useful_depth() const {
  return std::max(0, params_.max_tokens - 1 - layers_);
}

bool SequenceState::EndLayer(std::vector<LayerOutput> outputs) {
  ++layers_;
  last_layer_ = std::move(outputs);
  std::vector<double> best_active(pools_.size(), sampling::kLogZero);
  std::vector<bool> any_active(pools_.size(), false);
  for (const LayerOutput& output : last_layer_) {
    const int g = output.group;
    if (output.finished) {
      pools_[g].Insert(paths_, output.path, output.log_score, /*finished=*/true, output.penalty);
    } else {
      any_active[g] = true;
      best_active[g] =
          std::max(best_active[g], pools_[g].Bound(output.log_score - output.penalty, layers_));
    }
  }
  // Nothing that is returned can come any more (8.4).
  if (!pools_[0].Reaches(*std::max_element(best_active.begin(), best_active.end())))
    any_active.assign(pools_.size(), false);
  const int width = LayerWidth(params_, layers_) / params_.num_beam_groups;
  for (size_t g = 0; g < pools_.size(); ++g)
    goes_on_[g] = any_active[g] && !pools_[g].PolicyStops(best_active[g], width);
  if (layers_ >= params_.max_tokens) {
    for (const LayerOutput& output : last_layer_) {
      if (output.finished || !goes_on_[output.group]) continue;
      pools_[output.group].Insert(paths_, output.path, output.log_score, /*finished=*/false,
                                  output.penalty);
    }
    goes_on_.assign(pools_.size(), false);
  }
  finished_ = std::find(goes_on_.begin(), goes_on_.end(), true) == goes_on_.end();
  return !finished_;
}

std::vector<TokenId> SequenceState::StablePrefix(absl::Span<const Beam> live) const {
  std::vector<PathId> contenders;
  double best = sampling::kLogZero;
  for (const HypothesisPool& pool : pools_) {
    if (pool.entries().empty()) continue;
    if (!contenders.empty() && !(pool.entries()[0].score > best)) continue;
    contenders = {pool.entries()[0].path};
    best = pool.entries()[0].score;
  }
  // Before one is sure to be returned, there may be none.
  if (params_.min_score > kEveryScore && !pools_[0].Reaches(best)) return {};
  if (!finished_) {
    for (const Beam& beam : live) {
      if (pools_[0].Bound(beam.log_score - beam.penalty, layers_) >= best)
        contenders.push_back(beam.path);
    }
  }
  return paths_.Tokens(paths_.CommonAncestor(contenders));
}

RoundLedger::RoundLedger(const DraftForest& forest, size_t num_roots, int beam_width)
    : forest_(forest), beam_width_(beam_width), index_(forest), became_(forest.size(), kNoPath) {
  COPPICE_CHECK_MSG(static_cast<size_t>(forest.num_roots) == num_roots,
                    absl::StrCat(forest.num_roots, " forest roots, ", num_roots, " decoder roots"));
  DecodingStats& stats = verdict_.stats;
  stats.rounds = stats.target_passes = 1;
  stats.drafted_nodes = forest.size();
  stats.accepted_by_layer.assign(forest.depth(), 0);
  if (forest.depth() == 0) {
    stats.plain_rounds = 1;
  } else {
    stats.draft_depth_sum = forest.depth();
    stats.draft_width_sum = static_cast<double>(forest.size()) / forest.depth();
  }
  verdict_.min_margin = sampling::kInfinity;
}

Beam RoundLedger::Extend(PathTree* paths, const Beam& parent, TokenId token, double log_score) {
  Beam child{paths->Extend(parent.path, token), log_score, index_.Child(parent.row, token),
             parent.row};
  outputs_.push_back(child.path);
  if (child.row < 0) return child;
  PathId& became = became_[Index(forest_.PlaceOf(child.row).node())];
  if (became == kNoPath) {
    became = child.path;
    ++verdict_.stats.accepted_nodes;
    if (++verdict_.stats.accepted_by_layer[verdict_.stats.layers] == 1)
      ++verdict_.stats.accepting_layers;
  }
  return child;
}

void RoundLedger::AddLayer(int width) {
  ++verdict_.stats.layers;
  verdict_.stats.beam_tokens += width;
  verdict_.outputs_by_layer.push_back(static_cast<int>(outputs_.size()));
  std::sort(outputs_.begin(), outputs_.end());
  const auto end = std::unique(outputs_.begin(), outputs_.end());
  verdict_.distinct_by_layer.push_back(static_cast<int>(end - outputs_.begin()));
  outputs_.clear();
}

void RoundLedger::AddMargin(double margin) {
  verdict_.min_margin = std::min(verdict_.min_margin, margin);
}

void RoundLedger::AddOverlap(double overlap) {
  verdict_.stats.overlap_sum += overlap;
  ++verdict_.stats.overlap_layers;
}

Verdict RoundLedger::Finish(absl::Span<const Beam> new_roots) && {
  verdict_.node_path.assign(forest_.size(), kNoPath);
  for (const PathId path : became_) verdict_.accepted.push_back(path != kNoPath);
  for (const Beam& root : new_roots) {
    const int row = root.row >= 0 ? root.row : root.parent_row;
    if (row < 0) continue;
    for (TreePlace place = forest_.PlaceOf(row); !place.is_root();) {
      const int32_t node = Index(place.node());
      if (verdict_.node_path[node] != kNoPath) break;
      verdict_.node_path[node] = became_[node];
      place = forest_.parent[node];
    }
  }
  return std::move(verdict_);
}

}  // namespace coppice::decoding
