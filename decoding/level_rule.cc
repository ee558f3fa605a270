#include "decoding/level_rule.h"

#include "decoding/drafter.h"
#include "decoding/method.h"

namespace coppice::decoding {

std::optional<ForestPlan::Forest> DeviceForest(const DecodingParams& params,
                                               const DraftState& state, int width) {
  const absl::StatusOr<const MethodRow*> method = ResolveMethod(params);
  if (!method.ok() || (*method)->level_rule == nullptr) return std::nullopt;
  if (!state.known_roots.empty()) return std::nullopt;  // their children are told, not ranked
  if (params.warp.penalises()) return std::nullopt;     // each row has biases of its own
  if (params.format != nullptr) return std::nullopt;    // and tokens of its own
  const sampling::WarpParams warp = DraftWarp(params.warp, params);
  if (warp.top_k <= 0 || (warp.top_p > 0 && warp.top_p < 1) || warp.min_p > 0) return std::nullopt;
  ForestPlan::Forest forest;
  forest.rule.kind = (*method)->level_rule(params);
  forest.rule.width = width;
  forest.rule.support = warp.top_k;
  forest.rule.temperature = warp.temperature;
  forest.rule.stop_ids = params.stop_ids;
  forest.root_hash = state.root_hash;
  forest.root_score = state.root_score;
  if (forest.rule.kind != LevelRule::Kind::kPicks) return forest;
  forest.rule.seed = params.seed;
  forest.rule.beam_width = params.beam_width;
  forest.rule.refill = params.refill;
  forest.rule.set_semantics = params.set_semantics;
  forest.slot_root = state.slot_root;
  forest.slot_token = state.slot_token;
  forest.slot_log_prob = state.slot_log_prob;
  return forest;
}

DraftForest ForestOf(const GrownForest& grown, int num_roots) {
  DraftForest forest = DraftForest::Empty(num_roots);
  if (!grown.layers.empty()) forest.layer_begin.push_back(0);
  for (const GrownForest::Layer& layer : grown.layers) {
    const int above = forest.depth() == 0 ? 0 : forest.layer_begin[forest.depth() - 1];
    for (size_t i = 0; i < layer.token.size(); ++i) {
      forest.token.push_back(layer.token[i]);
      forest.parent.push_back(forest.depth() == 0 ? -1 - layer.parent[i] : above + layer.parent[i]);
    }
    forest.layer_begin.push_back(forest.size());
  }
  return forest;
}

}  // namespace coppice::decoding
