#include "decoding/device_drafting.h"

#include "decoding/drafter.h"
#include "decoding/method.h"

namespace coppice::decoding {

std::optional<ForestPlan::Forest> DeviceForest(const DecodingParams& params,
                                               const DraftState& state, int width) {
  const absl::StatusOr<const MethodRow*> method = ResolveMethod(params);
  if (!method.ok() || (*method)->device_drafting == nullptr) return std::nullopt;
  // The children of known roots are given, not ranked.
  if (!state.known_roots.empty()) return std::nullopt;
  if (!state.group_beams.empty()) return std::nullopt;   // each group ranks its own children
  if (params.sampling.penalises()) return std::nullopt;  // each row has its own biases
  if (params.format != nullptr) return std::nullopt;     // each row has its own allowed tokens
  const sampling::SamplingParams sampling = DraftSampling(params.sampling, params);
  if (sampling.top_k <= 0 || (sampling.top_p > 0 && sampling.top_p < 1) || sampling.min_p > 0)
    return std::nullopt;
  ForestPlan::Forest forest;
  forest.rule.kind = (*method)->device_drafting(params);
  forest.rule.width = width;
  forest.rule.support = sampling.top_k;
  forest.rule.temperature = sampling.temperature;
  forest.rule.stop_ids = params.stop_ids;
  forest.root_hash = state.root_hash;
  forest.root_score = state.root_score;
  if (forest.rule.kind != DeviceDrafting::Kind::kPicks) return forest;
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
    const int depth = forest.depth();
    for (size_t i = 0; i < layer.token.size(); ++i) {
      const int32_t above = layer.parent[i];
      forest.token.push_back(layer.token[i]);
      forest.parent.push_back(depth == 0
                                  ? TreePlace(RootId{above})
                                  : TreePlace(NodeId{forest.layer_begin[depth - 1] + above}));
    }
    forest.layer_begin.push_back(forest.size());
  }
  return forest;
}

}  // namespace coppice::decoding
