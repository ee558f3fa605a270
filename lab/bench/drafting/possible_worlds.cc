#include "lab/bench/drafting/possible_worlds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "sampling/gumbel_kernels.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

constexpr uint64_t kNormals = 4096;
constexpr double kLayerWeight = .9;    // weight of a need, for each layer below the roots
constexpr double kSpareWeight = 1e-3;  // of the need of a spare world

// Standard normal values, in an order without meaning.
const std::array<double, kNormals>& Normals() {
  static const auto* const table = [] {
    auto* normals = new std::array<double, kNormals>;
    for (uint32_t i = 0; i < kNormals; i += 2) {
      const double u = sampling::Uniform(/*seed=*/1, sampling::Domain::kDirect, 0, 0, i);
      const double v = sampling::Uniform(/*seed=*/1, sampling::Domain::kDirect, 0, 0, i + 1);
      const double radius = std::sqrt(-2 * std::log(u));
      (*normals)[i] = radius * std::cos(2 * M_PI * v);
      (*normals)[i + 1] = radius * std::sin(2 * M_PI * v);
    }
    return normals;
  }();
  return *table;
}

int LargestKey(absl::Span<const double> keys) {
  return static_cast<int>(std::max_element(keys.begin(), keys.end()) - keys.begin());
}

}  // namespace

bool IsBelowARoot(uint64_t path, const decoding::DraftState& state,
                  absl::FunctionRef<uint64_t(uint64_t path)> parent_of) {
  for (uint64_t at = path; at != 0; at = parent_of(at)) {
    if (std::find(state.root_hash.begin(), state.root_hash.end(), at) != state.root_hash.end())
      return true;
  }
  return false;
}

void PossibleWorlds::Begin(const decoding::DraftState& state) {
  state_ = state;
  const auto parent_of = [this](uint64_t path) {
    const auto found = rows_.find(path);
    return found == rows_.end() ? 0 : found->second.parent;
  };
  std::vector<uint64_t> dead;
  for (const auto& [path, row] : rows_) {
    if (!IsBelowARoot(path, state, parent_of)) dead.push_back(path);
  }
  for (const uint64_t path : dead) rows_.erase(path);
}

void PossibleWorlds::Add(const Want& want, const sampling::Distribution& row) {
  Row added;
  added.parent = want.parent;
  added.row = row;
  rows_.insert_or_assign(want.path, std::move(added));
}

const PossibleWorlds::Draw* PossibleWorlds::Draws(const World& world, uint64_t path,
                                                  Row* row) const {
  const size_t slots = params_.beam_width, support = row->row.size();
  if (row->keys.empty()) {
    row->keys.resize(slots * support);
    for (size_t w = 0; w < slots; ++w) {
      double* const keys = &row->keys[w * support];
      sampling::GumbelMany({params_.seed, sampling::Domain::kToken, path, static_cast<uint32_t>(w)},
                           row->row.tokens, keys);
      for (size_t i = 0; i < support; ++i) keys[i] += row->row.log_probs[i];
    }
    row->draws.resize(worlds_.size() * slots);
    row->drawn.assign(worlds_.size(), false);
  }
  const size_t number = &world - worlds_.data();
  Draw* const draws = &row->draws[number * slots];
  if (row->drawn[number]) return draws;
  row->drawn[number] = true;
  const uint64_t begin = sampling::ExtendHash(path, static_cast<TokenId>(number));
  const double sigma = IsSpare(world) ? options_.spare_sigma : options_.sigma;
  std::vector<double> error(support), keys(support);
  double sum = 0;
  for (size_t i = 0; i < support; ++i) {
    error[i] = sigma * Normals()[(begin + i) % kNormals];
    sum += std::exp(row->row.log_probs[i] + error[i]);
  }
  for (size_t w = 0; w < slots; ++w) {
    for (size_t i = 0; i < support; ++i) keys[i] = row->keys[w * support + i] + error[i];
    const int best = LargestKey(keys);
    draws[w] = {row->row.tokens[best], row->row.log_probs[best] + error[best] - std::log(sum)};
  }
  return draws;
}

std::vector<PossibleWorlds::Beam> PossibleWorlds::Roots() const {
  std::vector<Beam> beams(state_.root_hash.size());
  for (size_t r = 0; r < beams.size(); ++r) {
    beams[r].path = state_.root_hash[r];
    beams[r].score = state_.root_score[r];
    beams[r].place = RootId{static_cast<int32_t>(r)};
  }
  return beams;
}

bool PossibleWorlds::FindRows(int layer, absl::Span<const int> picks, std::vector<Beam>* beams,
                              World* world) {
  std::vector<bool> needed(beams->size(), false);
  for (size_t w = 0; w < picks.size(); ++w) {
    if (!IsKnown(layer, w)) needed[picks[w]] = true;
  }
  for (size_t b = 0; b < beams->size(); ++b) {
    if (!needed[b]) continue;
    Beam& beam = (*beams)[b];
    if (const auto row = rows_.find(beam.path); row != rows_.end()) {
      beam.row = &row->second;
      continue;
    }
    world->missing.push_back(beam.path);
    const auto [want, is_new] = want_of_.try_emplace(beam.path, wants_.size());
    if (is_new) wants_.push_back({beam.path, beam.parent, beam.token, 0});
    wants_[want->second].need +=
        std::pow(kLayerWeight, layer) * (IsSpare(*world) ? kSpareWeight : 1);
  }
  return world->missing.empty();
}

std::vector<PossibleWorlds::Beam> PossibleWorlds::Outputs(int layer, absl::Span<const int> picks,
                                                          absl::Span<const Beam> beams,
                                                          const World& world) {
  std::vector<Beam> outputs;
  for (size_t w = 0; w < picks.size(); ++w) {
    const Beam& parent = beams[picks[w]];
    const Draw draw = IsKnown(layer, w) ? Draw{state_.slot_token[w], state_.slot_log_prob[w]}
                                        : Draws(world, parent.path, parent.row)[w];
    if (decoding::IsStopId(params_, draw.token)) continue;
    const uint64_t path = sampling::ExtendHash(parent.path, draw.token);
    const auto same = std::find_if(outputs.begin(), outputs.end(),
                                   [path](const Beam& output) { return output.path == path; });
    if (same != outputs.end()) {
      if (!params_.set_semantics) ++same->count;
      continue;
    }
    Beam output;
    output.path = path;
    output.parent = parent.path;
    output.token = draw.token;
    output.score = parent.score + draw.log_prob;
    output.above = parent.place;
    outputs.push_back(output);
  }
  return outputs;
}

std::vector<PossibleWorlds::Beam> PossibleWorlds::PickParents(int layer, size_t slots,
                                                              absl::Span<const Beam> outputs,
                                                              std::vector<int>* picks,
                                                              World* world) {
  std::vector<uint64_t> paths;
  for (const Beam& output : outputs) paths.push_back(output.path);
  std::vector<double> keys(outputs.size());
  std::vector<int> parent_of(outputs.size(), -1);
  std::vector<Beam> parents;
  picks->clear();
  world->layers.emplace_back();
  for (size_t w = 0; w < slots; ++w) {
    sampling::GumbelOfHashes({params_.seed, sampling::Domain::kParent, 0, static_cast<uint32_t>(w)},
                             paths, keys.data());
    for (size_t b = 0; b < outputs.size(); ++b)
      keys[b] += outputs[b].score + std::log(outputs[b].count);
    const int best = LargestKey(keys);
    if (parent_of[best] < 0) {
      parent_of[best] = static_cast<int>(parents.size());
      const Beam& output = outputs[best];
      const auto [node, is_new] = node_of_.try_emplace(output.path, nodes_.size());
      if (is_new) nodes_.push_back({output.token, output.above, layer});
      if (!IsSpare(*world)) ++nodes_[node->second].hits;
      world->layers.back().push_back(node->second);
      parents.push_back(output);
      parents.back().place = NodeId{node->second};
    }
    picks->push_back(parent_of[best]);
  }
  return parents;
}

void PossibleWorlds::ReplayWorld(World* world) {
  std::vector<Beam> beams = Roots();
  std::vector<int> picks(state_.slot_root.begin(), state_.slot_root.end());
  for (int layer = 0; layer < options_.most_layers; ++layer) {
    if (!FindRows(layer, picks, &beams, world)) return;
    const std::vector<Beam> outputs = Outputs(layer, picks, beams, *world);
    if (outputs.empty()) return;
    const size_t slots = params_.refill ? params_.beam_width : picks.size();
    beams = PickParents(layer, slots, outputs, &picks, world);
  }
}

void PossibleWorlds::Replay() {
  wants_.clear();
  want_of_.clear();
  nodes_.clear();
  node_of_.clear();
  worlds_.assign(options_.worlds + options_.spare_worlds, {});
  for (World& world : worlds_) ReplayWorld(&world);
  std::stable_sort(wants_.begin(), wants_.end(),
                   [](const Want& a, const Want& b) { return a.need > b.need; });
  for (size_t i = 0; i < wants_.size(); ++i) want_of_[wants_[i].path] = static_cast<int>(i);
}

decoding::DraftForest PossibleWorlds::Forest(int nodes, int depth) {
  std::vector<int> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int n) { return nodes_[n].hits == 0 || nodes_[n].layer >= depth; });
  // A node has at most as many hits as its parent, so the parent comes first.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(-nodes_[a].hits, nodes_[a].layer) <
           std::pair(-nodes_[b].hits, nodes_[b].layer);
  });
  order.resize(std::min<size_t>(order.size(), nodes));
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return nodes_[a].layer < nodes_[b].layer; });
  auto forest = decoding::DraftForest::Empty(static_cast<int>(state_.root_hash.size()));
  for (Node& node : nodes_) node.forest_node = -1;
  for (const int n : order) {
    Node& node = nodes_[n];
    while (forest.depth() <= node.layer) {
      if (forest.layer_begin.empty()) forest.layer_begin.push_back(0);
      forest.layer_begin.push_back(forest.size());
    }
    const TreePlace above = node.above.is_root()
                                ? node.above
                                : TreePlace(NodeId{nodes_[Index(node.above.node())].forest_node});
    node.forest_node = Index(forest.Add(above, node.token));
    forest.layer_begin.back() = forest.size();
  }
  double sum = 0;
  for (int w = 0; w < options_.worlds; ++w) {
    World& world = worlds_[w];
    const auto outside = [&](absl::Span<const int> layer) {
      return std::any_of(layer.begin(), layer.end(),
                         [&](int n) { return nodes_[n].forest_node < 0; });
    };
    world.covered = static_cast<int>(
        std::find_if(world.layers.begin(), world.layers.end(), outside) - world.layers.begin());
    sum += 1 + world.covered;
  }
  layers_ = sum / options_.worlds;
  return forest;
}

double PossibleWorlds::Gain(int count) const {
  int gaining = 0;
  for (int w = 0; w < options_.worlds; ++w) {
    const World& world = worlds_[w];
    if (world.missing.empty() || world.covered < static_cast<int>(world.layers.size())) continue;
    gaining += std::all_of(world.missing.begin(), world.missing.end(),
                           [&](uint64_t path) { return want_of_.at(path) < count; });
  }
  return static_cast<double>(gaining) / options_.worlds;
}

}  // namespace coppice::lab
