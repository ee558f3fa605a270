#include "draft_node/forest_builder.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/device_drafting.h"
#include "decoding/row_need.h"
#include "sampling/target_row.h"

namespace coppice::draft_node {

ForestBuilder::ForestBuilder(decoding::DraftRequest request, DraftSession* session,
                             model::BlockManager* blocks)
    : request_(std::move(request)), session_(session), blocks_(blocks) {}

absl::StatusOr<std::unique_ptr<ForestBuilder>> ForestBuilder::Start(decoding::DraftRequest request,
                                                                    DraftSession* session,
                                                                    model::BlockManager* blocks) {
  auto builder =
      std::unique_ptr<ForestBuilder>(new ForestBuilder(std::move(request), session, blocks));
  builder->FindRootStates();
  COPPICE_ASSIGN_OR_RETURN(
      builder->drafter_,
      decoding::MakeDrafter(session->params(), builder->request_.state, builder->request_.width));
  COPPICE_RETURN_IF_ERROR(builder->MatchRoots());
  return builder;
}

// The states of the leader's format mean nothing here.
void ForestBuilder::FindRootStates() {
  const OutputFormat* format = session_->params().format.get();
  std::vector<OutputFormat::State>& states = request_.state.root_format_state;
  states.assign(request_.state.root_hash.size(), 0);
  for (size_t r = 0; format != nullptr && r < states.size(); ++r) {
    std::vector<TokenId> tail;  // after the stable tokens
    request_.roots.tree.AppendPath(request_.roots.ends[r], &tail);
    states[r] = session_->stable_format_state();
    for (const TokenId token : tail) states[r] = format->Next(states[r], token);
  }
}

ForestBuilder::~ForestBuilder() {
  if (!started()) {
    blocks_->Retain(session_->sequence(), known_);
  } else if (session_->takes_states()) {
    blocks_->Retain(session_->sequence(), roots_);
  }
}

absl::Span<const uint16_t> ForestBuilder::StateOf(NodeId entry) const {
  const auto& [first, count, nodes, values] = request_.states;
  const auto found = std::lower_bound(nodes.begin(), nodes.end(), entry);
  if (found == nodes.end() || *found != entry) return {};
  const size_t columns = values.size() / (count + nodes.size());
  return absl::MakeConstSpan(values).subspan((count + (found - nodes.begin())) * columns, columns);
}

absl::Status ForestBuilder::MissingStateOf(NodeId entry) const {
  std::vector<TokenId> tail;  // after the stable tokens
  request_.roots.tree.AppendPath(entry, &tail);
  return MissingState(session_->prompt_length() + session_->stable_length() +
                      static_cast<int>(tail.size()) - 1);
}

// Each entry must be a root or above one: nothing keeps the KV of others.
absl::Status ForestBuilder::CheckTree() const {
  const TokenTree& tree = request_.roots.tree;
  std::vector<bool> leads(tree.rows(), false);  // to a root
  for (const NodeId end : request_.roots.ends) leads[tree.RowOf(end)] = true;
  for (int i = tree.size() - 1; i >= 0; --i) {
    if (!leads[tree.RowOf(NodeId{i})]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trie_token[", i, "]: leads to no root, expected a root or tokens above one"));
    }
    leads[tree.RowOf(tree.parent[i])] = true;
  }
  return absl::OkStatus();
}

absl::Status ForestBuilder::MatchRoots() {
  COPPICE_RETURN_IF_ERROR(CheckTree());
  COPPICE_ASSIGN_OR_RETURN(const model::KvNode stable, session_->StableNode(&missing_));
  const bool takes_states = session_->takes_states();
  const TokenTree& tree = request_.roots.tree;
  std::vector<model::KvNode> kv(tree.rows(), stable);  // by row: the root of the tree first
  for (int i = 0; i < tree.size(); ++i) {
    const size_t known = missing_.size();
    COPPICE_ASSIGN_OR_RETURN(
        kv[tree.RowOf(NodeId{i})],
        session_->Child(kv[tree.RowOf(tree.parent[i])], tree.token[i], &missing_));
    if (!takes_states || missing_.size() == known) continue;
    missing_.back().state = StateOf(NodeId{i});
    if (missing_.back().state.empty()) return MissingStateOf(NodeId{i});
  }
  absl::flat_hash_set<model::KvNode> are_roots;
  for (const NodeId end : request_.roots.ends) {
    if (!are_roots.insert(kv[tree.RowOf(end)]).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "root_trie[", roots_.size(), "]: has the tokens of another root, expected others"));
    }
    roots_.push_back(kv[tree.RowOf(end)]);
    root_token_.push_back(tree.token[Index(end)]);
    root_state_.emplace_back();
    if (!takes_states) continue;
    root_state_.back() = StateOf(end);
    if (root_state_.back().empty()) return MissingStateOf(end);
  }
  blocks_->Retain(session_->sequence(), roots_);
  absl::flat_hash_set<model::KvNode> added;
  for (const MissingRow& row : missing_) added.insert(row.node);
  for (model::KvNode node : roots_) {
    while (added.contains(node)) node = blocks_->parent(session_->sequence(), node);
    known_.push_back(node);
  }
  // Roots become rows with logits. The other missing tokens become rows without logits.
  std::erase_if(missing_, [&](const MissingRow& row) { return are_roots.contains(row.node); });
  return absl::OkStatus();
}

void ForestBuilder::UseBlocks(const BlockModel& model, int vocab, int max_rows) {
  blocks_of_roots_.emplace(model, request_.depth, vocab);
  const auto roots = static_cast<int>(roots_.size());
  blocks_of_roots_->Limit(roots, max_rows - roots - static_cast<int>(missing_.size()));
  request_.depth = blocks_of_roots_->levels();
}

int ForestBuilder::rows() const {
  if (blocks_of_roots_) {
    const int of_root = 1 + blocks_of_roots_->rows_of_root();
    return static_cast<int>(missing_.size()) + static_cast<int>(roots_.size()) * of_root;
  }
  return static_cast<int>(drafter_->frontier().size() + (level_ == 0 ? missing_.size() : 0));
}

int ForestBuilder::length() const {
  return static_cast<int>(request_.state.layers_committed) + level_;
}

sampling::RowPath ForestBuilder::PathOf(TreePlace place) const {
  const decoding::DecodingParams& params = session_->params();
  if (!params.sampling.penalises() && params.format == nullptr) return length();
  const decoding::DraftForest& forest = drafter_->forest();
  std::vector<TokenId> tail;  // after the stable tokens
  request_.roots.tree.AppendPath(request_.roots.ends[Index(forest.RootOf(place))], &tail);
  forest.AppendPath(place, &tail);
  sampling::RowPath path = length();
  if (params.sampling.penalises()) {
    const absl::Span<const TokenId> stable = session_->stable_tokens();
    path.tokens.assign(stable.begin(), stable.end());
    path.tokens.insert(path.tokens.end(), tail.begin(), tail.end());
  }
  if (params.format != nullptr) {
    path.format_state = session_->stable_format_state();
    for (const TokenId token : tail)
      path.format_state = params.format->Next(path.format_state, token);
  }
  return path;
}

RowNeed ForestBuilder::NeedAfter(const sampling::RowPath& path, model::StepBuilder* step) const {
  RowNeed need = decoding::DraftNeed(session_->params());
  if (need.form == RowNeed::Form::kWhole) return need;
  const auto biases = sampling::SamplingAt(session_->params(), path).logit_bias;
  if (biases.size() > decoding::kMostListedBiases) return RowNeed();
  const auto range = step->AddBias(biases);
  need.bias_begin = range.begin;
  need.bias_end = range.end;
  return need;
}

absl::Status ForestBuilder::CommitRoots(std::vector<KvCopy>* commits) {
  session_->DropStates();
  std::vector<model::KvNode> parents;
  for (model::KvNode root : roots_) {
    parents.push_back(blocks_->parent(session_->sequence(), root));
  }
  return blocks_->Commit(session_->sequence(), parents, commits).status();
}

absl::Status ForestBuilder::AppendRows(model::StepBuilder* step) {
  const model::SequenceHandle sequence = session_->sequence();
  const decoding::DraftForest& forest = drafter_->forest();
  node_kv_.resize(forest.size(), model::kPrefixEnd);
  need_.clear();
  if (level_ == 0) {
    for (const MissingRow& row : missing_) {
      step->AddNodeRow(sequence, row.node, row.token);
      if (!row.state.empty()) step->SetState(step->rows() - 1, row.state);
    }
  }
  if (blocks_of_roots_) return AppendBlocks(step);
  const bool penalises = session_->params().sampling.penalises();
  RowNeed need;
  if (!penalises) need = NeedAfter(length(), step);
  for (const TreePlace place : drafter_->frontier()) {
    const TokenId token = At(place, root_token_, forest.token);
    if (!place.is_root()) {
      const int32_t node = Index(place.node());
      COPPICE_ASSIGN_OR_RETURN(node_kv_[node],
                               blocks_->AddNode(sequence, NodeOf(forest.parent[node]), token));
    }
    if (penalises) need = NeedAfter(PathOf(place), step);
    need_.push_back(step->AddNodeRow(sequence, NodeOf(place), token, need));
    if (place.is_root() && !root_state_[Index(place.root())].empty())
      step->SetState(step->rows() - 1, root_state_[Index(place.root())]);
  }
  return absl::OkStatus();
}

// First K and V of the states that came for the roots, then their blocks. What biases and penalties
// of a request make of a row depends on the node, so no list of the row serves all nodes.
absl::Status ForestBuilder::AppendBlocks(model::StepBuilder* step) {
  const model::SequenceHandle sequence = session_->sequence();
  for (size_t r = 0; r < roots_.size(); ++r) {
    step->AddNodeRow(sequence, roots_[r], root_token_[r]);
    step->SetState(step->rows() - 1, root_state_[r]);
  }
  const decoding::DecodingParams& params = session_->params();
  RowNeed need = decoding::DraftNeed(params);
  const bool biased =
      params.sampling.penalises() || !sampling::SamplingAt(params, length()).logit_bias.empty();
  if (biased && !blocks_of_roots_->adds_bias()) need = RowNeed();
  for (size_t r = 0; r < roots_.size(); ++r) {
    COPPICE_RETURN_IF_ERROR(
        blocks_of_roots_->AppendBlock(sequence, roots_[r], root_token_[r], need, blocks_, step));
  }
  return absl::OkStatus();
}

namespace {

absl::Status BadRow(TreePlace place, TokenId token, float logit) {
  return absl::InvalidArgumentError(
      absl::StrCat("draft logits after node ", place.code(), ": token ", token, " is ", logit));
}

}  // namespace

void ForestBuilder::Grow(absl::Span<const sampling::Distribution> rows) {
  if (!session_->log_probs()) return drafter_->Grow(rows);
  const std::vector<TreePlace> above(drafter_->frontier().begin(), drafter_->frontier().end());
  drafter_->Grow(rows);
  const decoding::DraftForest& forest = drafter_->forest();
  for (int i = static_cast<int>(log_probs_.size()); i < forest.size(); ++i) {
    const auto row = std::find(above.begin(), above.end(), forest.parent[i]) - above.begin();
    log_probs_.push_back(sampling::LogProbOf(rows[row], forest.token[i]));
  }
}

decoding::DraftForest ForestBuilder::Sent() const {
  if (grown_) return *grown_;
  decoding::DraftForest sent = drafter_->Sent();
  // A forest with proposals has them already, and may be a part of the drafter's.
  if (sent.proposals.empty() && sent.token.size() == log_probs_.size()) sent.log_probs = log_probs_;
  return sent;
}

absl::StatusOr<std::vector<sampling::Distribution>> ForestBuilder::ReadFrontier(
    const kernels::StepRows& step, HostThreads* threads) const {
  const absl::Span<const TreePlace> frontier = drafter_->frontier();
  const decoding::DraftForest& forest = drafter_->forest();
  std::vector<ReadRow> read(frontier.size());
  threads->RunJobs(static_cast<int>(frontier.size()), [&](int i) {
    const TreePlace place = frontier[i];
    read[i] = blocks_of_roots_ ? blocks_of_roots_->Read(Index(forest.RootOf(place)), level_,
                                                        At(place, root_token_, forest.token),
                                                        session_->params(), PathOf(place))
                               : Read(step, need_[i], session_->params(), PathOf(place));
  });
  std::vector<sampling::Distribution> rows;
  rows.reserve(read.size());
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].bad_token >= 0) return BadRow(frontier[i], read[i].bad_token, read[i].bad_logit);
    rows.push_back(std::move(read[i].row));
  }
  return rows;
}

absl::Status ForestBuilder::Consume(const kernels::StepRows& step, HostThreads* threads,
                                    std::vector<KvCopy>* commits) {
  if (blocks_of_roots_) blocks_of_roots_->Take(&step, threads);
  do {
    COPPICE_ASSIGN_OR_RETURN(const std::vector<sampling::Distribution> rows,
                             ReadFrontier(step, threads));
    Grow(rows);
    if (level_ == 0) COPPICE_RETURN_IF_ERROR(CommitRoots(commits));
    ++level_;
  } while (blocks_of_roots_ && !done());
  return absl::OkStatus();
}

ForestPlan::Forest ForestBuilder::DeviceForest() const {
  return *decoding::DeviceForest(session_->params(), request_.state, request_.width);
}

// One level would gain nothing.
bool ForestBuilder::GrowsOnDevice(const model::ModelRunner& runner) const {
  if (started() || request_.depth < 2 || blocks_of_roots_) return false;
  const auto forest = decoding::DeviceForest(session_->params(), request_.state, request_.width);
  if (!forest.has_value()) return false;
  const model::SequenceHandle sequence = session_->sequence();
  for (const model::KvNode root : roots_) {
    if (blocks_->chain_length(sequence, root) != blocks_->chain_length(sequence, roots_[0]))
      return false;
  }
  ForestPlan::Forest levels = *forest;
  levels.levels.resize(request_.depth);
  RowNeed need = decoding::DraftNeed(session_->params());
  need.bias_end = 0;
  for (int level = 0; level < request_.depth; ++level) {
    const int after = static_cast<int>(request_.state.layers_committed) + level;
    const auto biases = sampling::SamplingAt(session_->params(), after).logit_bias.size();
    need.bias_end = std::max(need.bias_end, static_cast<int32_t>(biases));
  }
  return runner.GrowsForest(levels, need);
}

// Every root must be above a row, so that a device knows all chains.
int ForestBuilder::rows_at(int level) const {
  if (level == 0) return static_cast<int>(roots_.size() + missing_.size());
  return std::max(request_.width, static_cast<int>(roots_.size()));
}

absl::Status ForestBuilder::PlanLevel(model::StepBuilder* step, std::vector<KvCopy>* commits,
                                      ForestPlan::Forest* forest) {
  ForestPlan::Level level;
  level.first_row = step->rows();
  if (level_ == 0) {
    COPPICE_RETURN_IF_ERROR(AppendRows(step));
    level.first_row += static_cast<int>(missing_.size());
    level.rows = static_cast<int32_t>(roots_.size());
    level.first_need = need_.front();
    forest->levels.push_back(level);
    ++level_;
    // Without room in the pool the tokens stay where they are.
    const absl::Status committed = CommitRoots(commits);
    return absl::IsResourceExhausted(committed) ? absl::OkStatus() : committed;
  }
  std::vector<model::KvNode> nodes;
  for (int row = 0; row < rows_at(level_); ++row) {
    const model::KvNode above =
        planned_.empty() ? roots_[row % roots_.size()] : planned_.back()[row];
    // No child has this token, so no search finds the node before its token is chosen.
    const auto node = blocks_->AddNode(session_->sequence(), above, -1 - row);
    if (absl::IsResourceExhausted(node.status())) {
      request_.depth = level_;  // the forest ends where the pool does
      return absl::OkStatus();
    }
    COPPICE_RETURN_IF_ERROR(node.status());
    nodes.push_back(*node);
  }
  const RowNeed need = NeedAfter(length(), step);
  level.rows = static_cast<int32_t>(nodes.size());
  for (size_t row = 0; row < nodes.size(); ++row) {
    const int place = step->AddNodeRow(session_->sequence(), nodes[row], /*token=*/0, need);
    if (row == 0) level.first_need = place;
  }
  planned_.push_back(std::move(nodes));
  forest->levels.push_back(level);
  ++level_;
  return absl::OkStatus();
}

absl::Status ForestBuilder::TakeGrown(const GrownForest& grown) {
  level_ = request_.depth;
  grown_ = decoding::ForestOf(grown, static_cast<int>(roots_.size()));
  if (grown.bad_level >= 0) {
    const int32_t first = grown.bad_level == 0 ? 0 : grown_->layer_begin[grown.bad_level - 1];
    const TreePlace place = grown.bad_level == 0 ? TreePlace(RootId{grown.bad_node})
                                                 : TreePlace(NodeId{first + grown.bad_node});
    return BadRow(place, grown.bad_token, grown.bad_logit);
  }
  std::vector<model::BlockManager::Relabelled> relabelled;
  for (size_t l = 0; l < std::min(grown.layers.size(), planned_.size()); ++l) {
    const GrownForest::Layer& layer = grown.layers[l];
    for (size_t i = 0; i < layer.token.size(); ++i) {
      const model::KvNode parent =
          l == 0 ? roots_[layer.parent[i]] : planned_[l - 1][layer.parent[i]];
      relabelled.push_back({planned_[l][i], parent, layer.token[i]});
    }
  }
  blocks_->Relabel(session_->sequence(), relabelled);
  return absl::OkStatus();
}

}  // namespace coppice::draft_node
