#include "draft_node/forest_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/rows/logit_check.h"
#include "decoding/rows/row_need.h"
#include "decoding/rows/target_row.h"

namespace coppice::draft_node {

ForestBuilder::ForestBuilder(ForestRequest request, DraftSession* session,
                             model::BlockManager* blocks)
    : request_(std::move(request)), session_(session), blocks_(blocks) {}

absl::StatusOr<std::unique_ptr<ForestBuilder>> ForestBuilder::Start(ForestRequest request,
                                                                    DraftSession* session,
                                                                    model::BlockManager* blocks) {
  auto builder =
      std::unique_ptr<ForestBuilder>(new ForestBuilder(std::move(request), session, blocks));
  COPPICE_ASSIGN_OR_RETURN(
      builder->drafter_,
      decoding::MakeDrafter(session->params(), builder->request_.state, builder->request_.width));
  COPPICE_RETURN_IF_ERROR(builder->MatchRoots());
  return builder;
}

absl::Status ForestBuilder::MatchRoots() {
  const model::SequenceHandle sequence = session_->sequence();
  COPPICE_ASSIGN_OR_RETURN(const model::KvNode stable, session_->StableNode(&missing_));
  std::vector<model::KvNode> trie(request_.trie_token.size());
  for (size_t i = 0; i < trie.size(); ++i) {
    const model::KvNode parent =
        request_.trie_parent[i] < 0 ? stable : trie[request_.trie_parent[i]];
    bool found = false;
    trie[i] = blocks_->FindChild(sequence, parent, request_.trie_token[i], &found);
    if (found) continue;
    COPPICE_ASSIGN_OR_RETURN(trie[i], blocks_->AddNode(sequence, parent, request_.trie_token[i]));
    missing_.emplace_back(trie[i], request_.trie_token[i]);
  }
  for (int32_t entry : request_.root_trie) {
    if (entry < 0) {
      return absl::InvalidArgumentError("root_trie: a root has no unshared token of its own");
    }
    roots_.push_back(trie[entry]);
    root_token_.push_back(request_.trie_token[entry]);
  }
  blocks_->Retain(sequence, roots_);
  // Roots become rows with logits. The other missing tokens become rows without logits.
  std::erase_if(missing_, [this](const auto& entry) {
    return std::find(roots_.begin(), roots_.end(), entry.first) != roots_.end();
  });
  return absl::OkStatus();
}

model::KvNode ForestBuilder::NodeOf(int32_t entry) const {
  return entry < 0 ? roots_[-1 - entry] : node_kv_[entry];
}

int ForestBuilder::rows() const {
  return static_cast<int>(drafter_->frontier().size() + (level_ == 0 ? missing_.size() : 0));
}

int ForestBuilder::length() const {
  return static_cast<int>(request_.state.layers_committed) + level_;
}

decoding::RowPath ForestBuilder::PathOf(int32_t entry) const {
  if (!session_->params().warp.penalises()) return length();
  std::vector<TokenId> tail;  // last first
  for (; entry >= 0; entry = drafter_->forest().parent[entry])
    tail.push_back(drafter_->forest().token[entry]);
  for (int32_t at = request_.root_trie[-1 - entry]; at >= 0; at = request_.trie_parent[at])
    tail.push_back(request_.trie_token[at]);
  const absl::Span<const TokenId> stable = session_->stable_tokens();
  std::vector<TokenId> tokens(stable.begin(), stable.end());
  tokens.insert(tokens.end(), tail.rbegin(), tail.rend());
  return tokens;
}

absl::Status ForestBuilder::AppendRows(model::StepBuilder* step) {
  const model::SequenceHandle sequence = session_->sequence();
  const decoding::DraftForest& forest = drafter_->forest();
  node_kv_.resize(forest.size(), model::kPrefixEnd);
  need_.clear();
  if (level_ == 0) {
    for (const auto& [node, token] : missing_) step->AddNodeRow(sequence, node, token);
  }
  const decoding::DecodingParams& params = session_->params();
  const bool penalises = params.warp.penalises();
  const auto need_after = [&](const decoding::RowPath& path) {
    RowNeed need = decoding::DraftNeed(params);
    if (need.form == RowNeed::Form::kWhole) return need;
    const auto biases = decoding::WarpAt(params, path).logit_bias;
    if (biases.size() > decoding::kMostListedBiases) return RowNeed();
    const auto range = step->AddBias(biases);
    need.bias_begin = range.begin;
    need.bias_end = range.end;
    return need;
  };
  RowNeed need;
  if (!penalises) need = need_after(length());
  for (int32_t entry : drafter_->frontier()) {
    const TokenId token = entry < 0 ? root_token_[-1 - entry] : forest.token[entry];
    if (entry >= 0) {
      COPPICE_ASSIGN_OR_RETURN(node_kv_[entry],
                               blocks_->AddNode(sequence, NodeOf(forest.parent[entry]), token));
    }
    if (penalises) need = need_after(PathOf(entry));
    need_.push_back(step->AddNodeRow(sequence, NodeOf(entry), token, need));
  }
  return absl::OkStatus();
}

namespace {

// A draft row and its first invalid logit, if any.
struct ReadRow {
  decoding::Distribution row;
  TokenId bad_token = -1;
  float bad_logit = 0;
};

ReadRow Read(const kernels::StepRows& rows, int need, const decoding::DecodingParams& params,
             const decoding::RowPath& path) {
  ReadRow read;
  if (const ListedRow* listed = rows.Listed(need)) {
    read.bad_token = listed->bad_token;
    read.bad_logit = listed->bad_logit;
    if (read.bad_token < 0) read.row = decoding::DraftRow(*listed, params, path);
    return read;
  }
  const absl::Span<const float> logits = rows.Whole(need);
  read.bad_token = decoding::FirstBadLogit(logits);
  if (read.bad_token < 0) {
    read.row = decoding::DraftRow(logits, params, path);
  } else {
    read.bad_logit = logits[read.bad_token];
  }
  return read;
}

}  // namespace

absl::Status ForestBuilder::Consume(const kernels::StepRows& step, HostThreads* threads,
                                    std::vector<KvCopy>* commits) {
  std::vector<ReadRow> read(need_.size());
  threads->RunJobs(static_cast<int>(need_.size()), [&](int i) {
    read[i] = Read(step, need_[i], session_->params(), PathOf(drafter_->frontier()[i]));
  });
  std::vector<decoding::Distribution> rows;
  rows.reserve(read.size());
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].bad_token >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("draft logits after node ",
                                                     drafter_->frontier()[i], ": token ",
                                                     read[i].bad_token, " is ", read[i].bad_logit));
    }
    rows.push_back(std::move(read[i].row));
  }
  drafter_->Grow(rows);
  if (level_ == 0) {
    // All tokens of the roots now have KV, so the tokens that the roots' parents share move to the
    // prefix.
    std::vector<model::KvNode> parents;
    for (model::KvNode root : roots_)
      parents.push_back(blocks_->parent(session_->sequence(), root));
    auto moved = blocks_->Commit(session_->sequence(), parents, commits);
    if (!moved.ok()) return moved.status();
  }
  ++level_;
  return absl::OkStatus();
}

}  // namespace coppice::draft_node
