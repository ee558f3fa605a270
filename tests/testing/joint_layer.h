// Small joint layers with drafts, and the exact distribution of a verifier's output on such a
// layer. For the exhaustive tests of layer rules. Used by tests/decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "decoding/layer/layer_rule.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "sampling/deterministic_math.h"

namespace coppice::test::joint_layer {

inline sampling::Distribution Row(const std::vector<double>& weights) {
  double sum = 0;
  for (double weight : weights) sum += weight;
  sampling::Distribution row;
  for (int v = 0; v < weights.size(); ++v) {
    if (weights[v] == 0) continue;
    row.tokens.push_back(v);
    row.log_probs.push_back(sampling::Log(weights[v] / sum));
  }
  return row;
}

// A layer: target beams with multiplicities, and draft beams. The first draft beams may be current
// target beams.
struct Layer {
  std::vector<sampling::Distribution> target_rows;
  std::vector<sampling::Distribution> draft_rows;
  decoding::LayerDistribution p;
  decoding::LayerDistribution q;  // all draft beams, mass 1
  std::vector<int> draft_target;  // [draft beams] its target beam, or -1: its parent was removed
};

struct LayerBeam {
  double weight;
  int multiplicity;
  std::vector<double> row;
};

inline Layer MakeLayer(const std::vector<LayerBeam>& target, const std::vector<LayerBeam>& draft,
                       const std::vector<int>& draft_target) {
  Layer layer;
  for (const LayerBeam& beam : target) layer.target_rows.push_back(Row(beam.row));
  for (const LayerBeam& beam : draft) layer.draft_rows.push_back(Row(beam.row));
  std::vector<decoding::WeightedBeam> p, q;
  for (int b = 0; b < target.size(); ++b)
    p.push_back({b + 1u, sampling::Log(target[b].weight), target[b].multiplicity});
  for (int b = 0; b < draft.size(); ++b)
    q.push_back({b + 1u, sampling::Log(draft[b].weight), draft[b].multiplicity});
  layer.p = decoding::MakeLayerDistribution(p);
  layer.q = decoding::MakeLayerDistribution(q);
  layer.draft_target = draft_target;
  return layer;
}

// Makes the distributions point to the layer's own rows. Call it when the layer is no longer moved.
inline void Bind(Layer* layer) {
  for (int b = 0; b < layer->p.rows.size(); ++b) layer->p.rows[b].sparse = &layer->target_rows[b];
  for (int b = 0; b < layer->q.rows.size(); ++b) layer->q.rows[b].sparse = &layer->draft_rows[b];
}

// The row numbers of the draft beams in LayerInput. The target's beams come first, then the others.
inline std::vector<int> RowsOfDraftBeams(const Layer& layer) {
  std::vector<int> rows;
  int next = static_cast<int>(layer.p.rows.size());
  for (int target : layer.draft_target) rows.push_back(target >= 0 ? target : next++);
  return rows;
}

inline decoding::LayerDistribution ArrangedProposal(const Layer& layer) {
  decoding::LayerDistribution q;
  for (const decoding::WeightedRow& row : layer.p.rows) {
    q.rows.push_back({row.hash});
  }
  const std::vector<int> rows = RowsOfDraftBeams(layer);
  for (int b = 0; b < rows.size(); ++b) {
    if (rows[b] >= q.rows.size()) q.rows.resize(rows[b] + 1);
    q.rows[rows[b]] = layer.q.rows[b];
  }
  return q;
}

inline std::vector<decoding::Entry> DrawDrafts(const Layer& layer, int count,
                                               decoding::ChoiceSource* choices) {
  const std::vector<int> rows = RowsOfDraftBeams(layer);
  std::vector<decoding::Entry> drafts;
  for (int j = 0; j < count; ++j) {
    const decoding::Entry entry = choices->Choose(sampling::Domain::kDraft, j, layer.q).entry;
    drafts.push_back({rows[entry.beam], entry.token});
  }
  return drafts;
}

inline uint64_t Key(decoding::Entry entry) { return entry.beam * 100 + entry.token; }

using Verify = std::function<std::vector<decoding::Entry>(decoding::ChoiceSource*)>;

inline ExactDistribution EnumeratedDistribution(const Verify& verify) {
  ExactDistribution distribution;
  EnumerateChoices([&](ScriptedChoices* choices) {
    std::vector<uint64_t> outcome;
    for (const decoding::Entry& entry : verify(choices)) outcome.push_back(Key(entry));
    distribution[outcome] += choices->probability();
  });
  return distribution;
}

inline std::vector<decoding::Entry> Entries(const decoding::LayerResult& result) {
  std::vector<decoding::Entry> entries;
  for (const decoding::RuleOutput& output : result.outputs) entries.push_back(output.entry);
  return entries;
}

struct Config {
  const char* name;
  std::vector<LayerBeam> target;
  std::vector<LayerBeam> draft;
  std::vector<int> draft_target;
};

// One or two beams, V = 2..4.
inline const std::vector<Config>& Configs() {
  static const auto* configs = new std::vector<Config>{
      {"one beam", {{1, 1, {4, 3, 2, 1}}}, {{1, 1, {1, 2, 3, 4}}}, {0}},
      {"two beams", {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {{1, 1, {1, 1}}, {3, 1, {2, 3}}}, {0, 1}},
      {"multiplicities",
       {{2, 2, {3, 1}}, {1, 1, {1, 4}}},
       {{2, 2, {1, 1}}, {1, 1, {2, 3}}},
       {0, 1}},
      {"removed parent",
       {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
       {{1, 1, {1, 2}}, {2, 1, {2, 1}}, {1, 1, {1, 1}}},
       {0, 1, -1}},
      {"beam without proposal",
       {{2, 1, {3, 1}}, {1, 2, {1, 4}}},
       {{1, 1, {1, 2}}, {2, 1, {2, 1}}},
       {-1, 1}},
      {"all parents removed", {{2, 1, {3, 1}}}, {{1, 1, {1, 2}}, {2, 1, {2, 1}}}, {-1, -1}},
      {"disjoint supports", {{1, 1, {3, 1, 0, 0}}}, {{1, 1, {0, 0, 1, 1}}}, {0}},
      {"overlapping supports", {{1, 1, {3, 1, 0, 2}}}, {{1, 1, {0, 2, 1, 1}}}, {0}},
      {"p equals q", {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {0, 1}},
      {"one-hot p", {{1, 1, {0, 1, 0}}}, {{1, 1, {1, 2, 3}}}, {0}},
      {"one-hot q", {{1, 1, {1, 2, 3}}}, {{1, 1, {0, 0, 1}}}, {0}},
  };
  return *configs;
}

// P and Q differ a lot, and one parent has been removed.
inline const Config& HardCase() {
  static const auto* config = new Config{"hard",
                                         {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
                                         {{2, 1, {1, 3}}, {1, 1, {2, 1}}, {1, 1, {1, 1}}},
                                         {0, 1, -1}};
  return *config;
}
inline const Config& EasyCase() {
  static const auto* config = new Config{"no removed parent",
                                         {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
                                         {{2, 1, {1, 3}}, {1, 1, {2, 1}}},
                                         {0, 1}};
  return *config;
}

}  // namespace coppice::test::joint_layer
