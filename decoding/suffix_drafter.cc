#include "decoding/suffix_drafter.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/output_format.h"

namespace coppice::decoding {
namespace {

constexpr double kLengthWeight = 3;  // a match counts so many times as one that is a token shorter
constexpr int kMostChildren = 4;     // of a node
constexpr double kLeastReach = 0.01;
constexpr int kEnoughLength = 8;  // with such a match in its own texts, a root asks no corpus

// An earlier occurrence of the text up to a node of the draft.
struct Cursor {
  bool corpus = false;
  int32_t at = 0;     // its last token
  int32_t start = 0;  // where the text of the root occurred
  int length = 0;
  double weight = 0;
};

struct Child {
  TokenId token = 0;
  SuffixNode about;
  std::vector<Cursor> cursors;  // that have this token
};

// The last tokens of prompt and path.
std::vector<TokenId> TailOf(const PathTree& paths, PathId path, absl::Span<const TokenId> prompt) {
  std::vector<TokenId> tail;
  for (; path != kRootPath && tail.size() < SuffixIndex::kLongest; path = paths.parent(path))
    tail.push_back(paths.token(path));
  for (size_t i = prompt.size(); i > 0 && tail.size() < SuffixIndex::kLongest; --i)
    tail.push_back(prompt[i - 1]);
  std::reverse(tail.begin(), tail.end());
  return tail;
}

class Grower {
 public:
  Grower(const BeamDecoder& decoder, const DecodingParams& params, const SuffixTexts& texts,
         const SuffixLimits& limits, absl::FunctionRef<double(SuffixSource, int)> taken)
      : decoder_(decoder), params_(params), texts_(texts), limits_(limits), taken_(taken) {}

  SuffixDraft Grow(absl::FunctionRef<double(double, int)> gain);

 private:
  struct Node {
    TreePlace parent;  // among nodes_
    TokenId token = 0;
    int depth = 0;  // 1 below a root
    int root = 0;
    double reach = 1;  // probability that the target takes it and all above it
    SuffixNode about;
    OutputFormat::State state = 0;
    std::vector<Cursor> cursors;
  };
  struct Waiting {  // a node that may be appended, and what it is below
    double reach;
    int order;
    Node node;
    bool operator<(const Waiting& other) const {
      return std::tuple(reach, -order) < std::tuple(other.reach, -other.order);
    }
  };

  std::vector<Cursor> Find(absl::Span<const TokenId> tail) const;
  std::vector<Child> Children(absl::Span<const Cursor> cursors, int32_t leaf) const;
  void Advance(const Cursor& cursor, int32_t leaf,
               std::vector<std::pair<TokenId, Cursor>>* next) const;
  void AddKnown();
  void AddRoot(int root);
  void AddBelow(TreePlace parent, const Node& above, std::vector<Child> children);
  bool HasRoom(const Node& node) const;
  void Append(Node node);
  double Decided(int depth) const;
  SuffixDraft Built(int count) const;

  const BeamDecoder& decoder_;
  const DecodingParams& params_;
  const SuffixTexts& texts_;
  const SuffixLimits& limits_;
  absl::FunctionRef<double(SuffixSource, int)> taken_;
  std::vector<bool> known_;                  // [roots] all its children that matter are known
  std::vector<std::vector<TokenId>> given_;  // [roots] known tokens below it
  std::vector<int32_t> leaf_;                // [roots] its last token in the index
  std::priority_queue<Waiting> waiting_;
  int listed_ = 0;
  std::vector<Node> nodes_;
  std::vector<int> in_layer_;                // [depth] nodes so far
  std::vector<std::vector<double>> covers_;  // [depth][roots] sum of reach
  std::vector<double> decided_;              // [depth] probability that the layer is decided
};

std::vector<Cursor> Grower::Find(absl::Span<const TokenId> tail) const {
  std::vector<Cursor> cursors;
  int longest = 0;
  for (const SuffixIndex::Match& match : texts_.index->Find(tail)) {
    cursors.push_back({false, match.node, match.node, match.length});
    longest = std::max(longest, match.length);
  }
  if (texts_.corpus != nullptr && longest < kEnoughLength) {
    const SuffixCorpus::Matches matches = texts_.corpus->Find(tail);
    for (const int32_t place : matches.places)
      cursors.push_back({true, place, place, matches.length});
    longest = std::max(longest, matches.length);
  }
  for (Cursor& cursor : cursors) cursor.weight = std::pow(kLengthWeight, cursor.length - longest);
  return cursors;
}

// The tokens after a cursor. What follows the root itself is not known: an occurrence that has come
// to it repeats from its start.
void Grower::Advance(const Cursor& cursor, int32_t leaf,
                     std::vector<std::pair<TokenId, Cursor>>* next) const {
  const auto add = [&](TokenId token, int32_t at, double weight) {
    const int length = std::min(cursor.length + 1, SuffixIndex::kLongest);
    next->push_back({token, {cursor.corpus, at, cursor.start, length, weight}});
  };
  if (cursor.corpus) {
    const TokenId token = texts_.corpus->After(cursor.at);
    if (token != SuffixCorpus::kEnd) add(token, cursor.at + 1, cursor.weight);
    return;
  }
  const SuffixIndex& index = *texts_.index;
  int32_t child = index.FirstChild(cursor.at);
  if (child < 0 && cursor.at == leaf) child = index.FirstChild(cursor.start);
  int children = 0;
  for (int32_t one = child; one >= 0 && children < kMostChildren; one = index.NextChild(one))
    ++children;
  for (int i = 0; i < children; ++i, child = index.NextChild(child))
    add(index.token(child), child, cursor.weight / children);
}

std::vector<Child> Grower::Children(absl::Span<const Cursor> cursors, int32_t leaf) const {
  std::vector<std::pair<TokenId, Cursor>> next;
  for (const Cursor& cursor : cursors) Advance(cursor, leaf, &next);
  double total = 0;
  for (const auto& [token, cursor] : next) total += cursor.weight;
  std::vector<Child> children;
  for (const auto& [token, cursor] : next) {
    auto child = std::find_if(children.begin(), children.end(),
                              [token = token](const Child& one) { return one.token == token; });
    if (child == children.end()) child = children.insert(children.end(), {token, {}, {}});
    child->cursors.push_back(cursor);
  }
  for (Child& child : children) {
    double weight = 0;
    const Cursor* best = &child.cursors.front();
    for (const Cursor& cursor : child.cursors) {
      weight += cursor.weight;
      if (cursor.length > best->length) best = &cursor;
    }
    child.about.source = best->corpus                          ? SuffixSource::kCorpus
                         : texts_.index->InPrompt(best->start) ? SuffixSource::kPrompt
                                                               : SuffixSource::kAnswer;
    child.about.length = best->length - 1;
    child.about.share = weight / total;
    child.about.taken = child.about.share * taken_(child.about.source, child.about.length);
  }
  std::stable_sort(children.begin(), children.end(),
                   [](const Child& a, const Child& b) { return a.about.taken > b.about.taken; });
  if (children.size() > kMostChildren) children.resize(kMostChildren);
  return children;
}

// Children that the target's rows of an earlier round have decided: a layer is covered only if they
// are in the forest.
void Grower::AddKnown() {
  const size_t roots = decoder_.roots().size();
  known_.assign(roots, false);
  given_.assign(roots, {});
  if (params_.beam_width == 1) return;
  const DraftState state = decoder_.draft_state();
  for (size_t slot = 0; slot < state.slot_token.size(); ++slot) {
    if (state.slot_token[slot] >= 0)
      given_[state.slot_root[slot]].push_back(state.slot_token[slot]);
  }
  for (const DraftState::KnownChild& child : state.known_children)
    given_[child.root].push_back(child.token);
  for (const int32_t root : state.known_roots) known_[root] = true;
  for (auto& tokens : given_) {
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  }
}

void Grower::AddRoot(int root) {
  const PathTree& paths = decoder_.paths();
  const PathId path = decoder_.roots()[root];
  std::vector<TokenId> tail = TailOf(paths, path, texts_.prompt);
  Node above;
  above.root = root;
  above.state = params_.format == nullptr ? 0 : paths.format_state(path);
  std::vector<Child> children;
  for (const TokenId token : given_[root]) {
    tail.push_back(token);
    children.push_back({token, {SuffixSource::kKnown}, Find(tail)});
    tail.pop_back();
  }
  if (!known_[root]) {
    for (Child& child : Children(Find(tail), leaf_[root])) {
      if (!std::binary_search(given_[root].begin(), given_[root].end(), child.token))
        children.push_back(std::move(child));
    }
  }
  AddBelow(RootId{root}, above, std::move(children));
}

// A token that ends its path has no row, and one that the format does not allow is never taken.
void Grower::AddBelow(TreePlace parent, const Node& above, std::vector<Child> children) {
  if (above.depth >= limits_.depth) return;
  for (Child& child : children) {
    Node node;
    if (IsStopId(params_, child.token)) continue;
    if (params_.format != nullptr) {
      node.state = params_.format->Next(above.state, child.token);
      if (node.state == OutputFormat::kBroken || params_.format->Complete(node.state)) continue;
    }
    node.parent = parent;
    node.token = child.token;
    node.depth = above.depth + 1;
    node.root = above.root;
    node.reach = above.reach * child.about.taken;
    if (node.reach < kLeastReach && !limits_.prescribed) continue;
    node.about = child.about;
    node.cursors = std::move(child.cursors);
    const double reach = node.reach;
    waiting_.push({reach, listed_++, std::move(node)});
  }
}

bool Grower::HasRoom(const Node& node) const {
  if (!limits_.prescribed) return true;
  const int before = limits_.size.Nodes(limits_.width, node.depth - 1);
  return in_layer_[node.depth] < limits_.size.Nodes(limits_.width, node.depth) - before;
}

void Grower::Append(Node node) {
  const NodeId id{static_cast<int32_t>(nodes_.size())};
  ++in_layer_[node.depth];
  double& cover = covers_[node.depth][node.root];
  cover = std::min(1.0, cover + node.reach);
  decided_[node.depth] = Decided(node.depth);
  const int32_t leaf = leaf_[node.root];
  std::vector<Child> children = Children(node.cursors, leaf);
  node.cursors.clear();
  nodes_.push_back(std::move(node));
  AddBelow(id, nodes_.back(), std::move(children));
}

// A layer is decided if what the target takes below every root is in the forest.
double Grower::Decided(int depth) const {
  double covered = 1;
  for (size_t root = 0; root < known_.size(); ++root)
    covered *= depth == 1 && known_[root] ? 1 : covers_[depth][root];
  return covered;
}

// The first `count` nodes, layer by layer.
SuffixDraft Grower::Built(int count) const {
  SuffixDraft draft;
  draft.forest = DraftForest::Empty(static_cast<int>(decoder_.roots().size()));
  if (count == 0) return draft;
  draft.forest.layer_begin = {0};
  std::vector<NodeId> place(count);
  for (int depth = 1, added = 0; added < count; ++depth) {
    for (int i = 0; i < count; ++i) {
      const Node& node = nodes_[i];
      if (node.depth != depth) continue;
      place[i] = draft.forest.Add(
          node.parent.is_root() ? node.parent : TreePlace(place[Index(node.parent.node())]),
          node.token);
      draft.nodes.push_back(node.about);
      ++added;
    }
    draft.forest.layer_begin.push_back(draft.forest.size());
  }
  return draft;
}

SuffixDraft Grower::Grow(absl::FunctionRef<double(double, int)> gain) {
  const auto roots = decoder_.roots();
  in_layer_.assign(limits_.depth + 1, 0);
  covers_.assign(limits_.depth + 1, std::vector<double>(roots.size(), 0));
  AddKnown();
  decided_.assign(limits_.depth + 1, 0);
  decided_[0] = 1;  // without a draft
  for (int depth = 1; depth <= limits_.depth; ++depth) decided_[depth] = Decided(depth);
  for (size_t root = 0; root < roots.size(); ++root) {
    leaf_.push_back(texts_.index->NodeOf(roots[root]));
    const size_t before = waiting_.size();
    AddRoot(static_cast<int>(root));
    // A layer that misses this root cannot be decided.
    if (waiting_.size() == before && !known_[root] && !limits_.prescribed) return Built(0);
  }
  int best = 0;
  double best_gain = 1;
  while (!waiting_.empty() && nodes_.size() < limits_.nodes) {
    Node node = waiting_.top().node;
    waiting_.pop();
    if (!HasRoom(node)) continue;
    Append(std::move(node));
    const int count = static_cast<int>(nodes_.size());
    const double layers = std::accumulate(decided_.begin(), decided_.end(), 0.0);
    const double value = gain(layers, count);
    if (value > best_gain || limits_.prescribed) {
      best = count;
      best_gain = value;
    }
  }
  SuffixDraft draft = Built(best);
  draft.gain = best_gain;
  return draft;
}

}  // namespace

const char* SuffixSourceName(SuffixSource source) {
  switch (source) {
    case SuffixSource::kPrompt:
      return "prompt";
    case SuffixSource::kAnswer:
      return "answer";
    case SuffixSource::kCorpus:
      return "corpus";
    case SuffixSource::kKnown:
      return "known";
  }
  return "known";
}

bool TakesSuffixDrafts(const MethodRow& method) {
  return method.lossless && method.form != DraftForm::kNone && method.sends == "tree";
}

SuffixDraft DraftFromSuffixes(const BeamDecoder& decoder, const DecodingParams& params,
                              const SuffixTexts& texts, const SuffixLimits& limits,
                              absl::FunctionRef<double(SuffixSource, int)> taken,
                              absl::FunctionRef<double(double, int)> gain) {
  COPPICE_CHECK(texts.index != nullptr);
  return Grower(decoder, params, texts, limits, taken).Grow(gain);
}

}  // namespace coppice::decoding
