#include "tests/draft_node/path_states.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/element.h"
#include "sampling/rng.h"

namespace coppice::draft_node {

void PathStates::Append(absl::Span<const TokenId> path, std::vector<uint16_t>* values) const {
  uint64_t hash = sampling::kRootHash;
  for (const TokenId token : path) hash = sampling::ExtendHash(hash, token);
  std::mt19937_64 rng(hash);
  for (int i = 0; i < columns_; ++i) {
    const double uniform = static_cast<double>(rng() >> 11) / static_cast<double>(1ull << 53);
    values->push_back(kernels::FloatToBf16(static_cast<float>(4 * uniform - 2)));
  }
}

decoding::RowStates PathStates::OfRows(absl::Span<const TokenId> tokens, int first,
                                       int count) const {
  decoding::RowStates states;
  states.first = first;
  states.count = count;
  for (int row = first; row < first + count; ++row) Append(tokens.first(row), &states.values);
  return states;
}

void DecodedSequence::Advance(const decoding::DraftForest& forest, int layers, int vocab,
                              std::mt19937* rng) {
  std::set<Tokens> next;
  while (next.size() < roots.size()) {
    const int root = static_cast<int>((*rng)() % roots.size());
    Tokens path = roots[root];
    TreePlace place = RootId{root};
    bool drafted = true;
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<NodeId> children;
      for (int i = 0; drafted && i < forest.size(); ++i) {
        if (forest.parent[i] == place) children.push_back(NodeId{i});
      }
      drafted = !children.empty() && (*rng)() % 4 > 0;
      if (drafted) {
        const NodeId child = children[(*rng)() % children.size()];
        path.push_back(forest.token[Index(child)]);
        place = child;
      } else {
        path.push_back(static_cast<TokenId>((*rng)() % vocab));
      }
    }
    next.insert(std::move(path));
  }
  roots.assign(next.begin(), next.end());
}

Tokens DecodedSequence::Stable() const {
  Tokens shared(roots[0].begin(), roots[0].end() - 1);
  for (const Tokens& root : roots) {
    size_t same = 0;
    while (same < shared.size() && shared[same] == root[same]) ++same;
    shared.resize(same);
  }
  return shared;
}

decoding::DraftRequest DecodedSequence::Ask(int width, int depth, size_t known) const {
  const Tokens stable = Stable();
  decoding::DraftRequest request;
  request.width = width;
  request.depth = depth;
  request.stable_length = static_cast<uint32_t>(stable.size());
  request.stable_tokens.assign(stable.begin() + std::min(known, stable.size()), stable.end());
  std::map<Tokens, TreePlace> places = {{stable, RootId{0}}};
  request.roots.tree.num_roots = 1;
  for (const Tokens& root : roots) {
    for (size_t length = stable.size() + 1; length <= root.size(); ++length) {
      const Tokens path(root.begin(), root.begin() + length), above(path.begin(), path.end() - 1);
      if (places.contains(path)) continue;
      places[path] = request.roots.tree.Add(places.at(above), path.back());
    }
    request.roots.ends.push_back(places.at(root).node());
  }
  decoding::DraftState& state = request.state;
  state.root_score.assign(roots.size(), -1.0);
  state.root_multiplicity.assign(roots.size(), 1);
  for (size_t r = 0; r < roots.size(); ++r) state.slot_root.push_back(static_cast<int>(r));
  state.layers_committed = static_cast<uint32_t>(roots[0].size());
  return request;
}

namespace {

Tokens StableTokens(const DecodedSequence& sequence) {
  Tokens tokens = sequence.prompt;
  const Tokens stable = sequence.Stable();
  tokens.insert(tokens.end(), stable.begin(), stable.end());
  return tokens;
}

Tokens PathOf(const DecodedSequence& sequence, const decoding::DraftRequest& request, NodeId node) {
  Tokens path = StableTokens(sequence);
  request.roots.tree.AppendPath(node, &path);
  return path;
}

}  // namespace

decoding::RowStates StatesFor(const DecodedSequence& sequence,
                              const decoding::DraftRequest& request, const KnownRows& known,
                              int first, const PathStates& states) {
  const Tokens tokens = StableTokens(sequence);
  const int end = static_cast<int>(tokens.size());
  first = std::min(first, end);
  while (first < end && known.contains(Tokens(tokens.begin(), tokens.begin() + first + 1))) ++first;
  decoding::RowStates out = states.OfRows(tokens, first, end - first);
  const auto& ends = request.roots.ends;
  for (int i = 0; i < request.roots.tree.size(); ++i) {
    const NodeId node{i};
    const Tokens path = PathOf(sequence, request, node);
    if (known.contains(path) && std::find(ends.begin(), ends.end(), node) == ends.end()) continue;
    out.nodes.push_back(node);
    states.Append(absl::MakeConstSpan(path).first(path.size() - 1), &out.values);
  }
  return out;
}

void Answered(const DecodedSequence& sequence, const decoding::DraftRequest& request,
              KnownRows* known) {
  const Tokens tokens = StableTokens(sequence);
  for (size_t length = 2; length <= tokens.size(); ++length)
    known->insert(Tokens(tokens.begin(), tokens.begin() + length));
  for (int i = 0; i < request.roots.tree.size(); ++i)
    known->insert(PathOf(sequence, request, NodeId{i}));
}

}  // namespace coppice::draft_node
