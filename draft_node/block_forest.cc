#include "draft_node/block_forest.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "sampling/logit_check.h"

namespace coppice::draft_node {
namespace {

// By which the nodes of a block are known in the trie. No token has this number.
constexpr TokenId kBlockKey = std::numeric_limits<TokenId>::max();

// The largest logits, with equal ones the lower tokens, by ascending token.
TokenList Largest(absl::Span<const float> logits, size_t count) {
  std::vector<std::pair<float, TokenId>> heap;  // its front is the least; tokens are negated
  for (TokenId token = 0; token < static_cast<TokenId>(logits.size()); ++token) {
    if (heap.size() == count && logits[token] <= heap.front().first) continue;
    if (heap.size() == count) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.pop_back();
    }
    heap.emplace_back(logits[token], -token);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  std::sort(heap.begin(), heap.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  TokenList list;
  for (const auto& [logit, negated] : heap) {
    list.tokens.push_back(-negated);
    list.logits.push_back(logit);
  }
  return list;
}

}  // namespace

BlockForest::BlockForest(const BlockModel& model, int levels, int vocab)
    : model_(model), vocab_(vocab), levels_(std::min(levels, model.block.depth())) {}

void BlockForest::Limit(int roots, int rows) {
  while (levels_ > 1 && roots * rows_of_root() > rows) --levels_;
}

absl::Status BlockForest::AppendBlock(model::SequenceHandle sequence, model::KvNode root,
                                      TokenId token, RowNeed need, model::BlockManager* blocks,
                                      model::StepBuilder* step) {
  std::vector<model::KvNode> nodes;
  model::KvNode node = root;
  for (int row = 0; row < rows_of_root(); ++row) {
    COPPICE_ASSIGN_OR_RETURN(node, blocks->AddNode(sequence, node, kBlockKey));
    nodes.push_back(node);
  }
  std::vector<TokenId> tokens(nodes.size(), model_.block.mask);
  tokens[0] = token;
  if (model_.markov != nullptr && need.form != RowNeed::Form::kWhole) {
    need = RowNeed();
    need.form = RowNeed::Form::kRaw;
    need.raw_top = kCandidates;
  }
  const std::vector<RowNeed> needs(levels_, need);
  const int first = step->AddBlockRows(sequence, nodes, tokens, needs);
  for (int level = 0; level < levels_; ++level) needs_.push_back(first + level);
  return absl::OkStatus();
}

BlockForest::Candidates BlockForest::CandidatesOf(int need) const {
  if (const CandidateRow* const listed = rows_->Listed(need))
    return {listed->raw, listed->bad_token, listed->bad_logit};
  const absl::Span<const float> logits = rows_->Whole(need);
  Candidates candidates;
  candidates.bad_token = sampling::FirstBadLogit(logits);
  if (candidates.bad_token < 0) {
    candidates.list = Largest(logits, kCandidates);
  } else {
    candidates.bad_logit = logits[candidates.bad_token];
  }
  return candidates;
}

void BlockForest::Take(const kernels::StepRows* rows, HostThreads* threads) {
  rows_ = rows;
  if (model_.markov == nullptr) return;
  candidates_.resize(needs_.size());
  threads->RunJobs(static_cast<int>(needs_.size()),
                   [this](int i) { candidates_[i] = CandidatesOf(needs_[i]); });
}

ReadRow BlockForest::Read(int root, int level, TokenId token,
                          const decoding::DecodingParams& params,
                          const sampling::RowPath& path) const {
  COPPICE_CHECK(level < levels_);
  const int row = root * levels_ + level;
  if (model_.markov == nullptr) return draft_node::Read(*rows_, needs_[row], params, path);
  const Candidates& candidates = candidates_[row];
  if (candidates.bad_token >= 0) return {{}, candidates.bad_token, candidates.bad_logit};
  const std::vector<TokenId>& tokens = candidates.list.tokens;
  std::vector<float> biased = candidates.list.logits;
  model_.markov->Add(token, tokens, absl::MakeSpan(biased));
  std::vector<float> logits;
  if (params.format != nullptr) {  // it may allow none of the candidates
    const absl::Span<const float> whole = rows_->Whole(needs_[row]);
    logits.assign(whole.begin(), whole.end());
  }
  logits.resize(vocab_, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < tokens.size(); ++i) logits[tokens[i]] = biased[i];
  return draft_node::Read(logits, params, path);
}

}  // namespace coppice::draft_node
