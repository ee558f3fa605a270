#include "draft_node/forest_builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "decoding/logit_check.h"

namespace coppice {

ForestBuilder::ForestBuilder(ForestRequest request, DraftSession* session, BlockManager* blocks)
    : request_(std::move(request)), session_(session), blocks_(blocks) {}

absl::StatusOr<std::unique_ptr<ForestBuilder>> ForestBuilder::Start(ForestRequest request,
                                                                    DraftSession* session,
                                                                    BlockManager* blocks) {
  auto builder =
      std::unique_ptr<ForestBuilder>(new ForestBuilder(std::move(request), session, blocks));
  COPPICE_ASSIGN_OR_RETURN(
      builder->drafter_,
      MakeDrafter(session->params(), builder->request_.state, builder->request_.width));
  COPPICE_RETURN_IF_ERROR(builder->MatchRoots());
  return builder;
}

absl::Status ForestBuilder::MatchRoots() {
  const SequenceHandle sequence = session_->sequence();
  COPPICE_ASSIGN_OR_RETURN(const KvNode stable, session_->StableNode(&missing_));
  std::vector<KvNode> trie(request_.trie_token.size());
  for (size_t i = 0; i < trie.size(); ++i) {
    const KvNode parent = request_.trie_parent[i] < 0 ? stable : trie[request_.trie_parent[i]];
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
  // Roots are rows with logits; the other missing tokens are rows without.
  std::erase_if(missing_, [this](const auto& entry) {
    return std::find(roots_.begin(), roots_.end(), entry.first) != roots_.end();
  });
  return absl::OkStatus();
}

KvNode ForestBuilder::NodeOf(int32_t entry) const {
  return entry < 0 ? roots_[-1 - entry] : node_kv_[entry];
}

int ForestBuilder::rows() const {
  return static_cast<int>(drafter_->frontier().size() + (level_ == 0 ? missing_.size() : 0));
}

absl::Status ForestBuilder::AppendRows(BatchBuilder* batch) {
  const SequenceHandle sequence = session_->sequence();
  const DraftForest& forest = drafter_->forest();
  node_kv_.resize(forest.size(), kPrefixEnd);
  logits_row_.clear();
  if (level_ == 0) {
    for (const auto& [node, token] : missing_) batch->AddNodeRow(sequence, node, token, false);
  }
  for (int32_t entry : drafter_->frontier()) {
    const TokenId token = entry < 0 ? root_token_[-1 - entry] : forest.token[entry];
    if (entry >= 0) {
      COPPICE_ASSIGN_OR_RETURN(node_kv_[entry],
                               blocks_->AddNode(sequence, NodeOf(forest.parent[entry]), token));
    }
    logits_row_.push_back(batch->AddNodeRow(sequence, NodeOf(entry), token, true));
  }
  return absl::OkStatus();
}

absl::Status ForestBuilder::Consume(absl::Span<const float> logits, int vocab_size,
                                    HostThreads* threads, std::vector<KvCopy>* commits) {
  const int length = static_cast<int>(request_.state.layers_committed) + level_;
  const int count = static_cast<int>(logits_row_.size());
  std::vector<Distribution> rows(count);
  std::vector<int> bad(count);  // token of a logit that is no number, or -1
  const auto logits_of = [&](int i) {
    return logits.subspan(static_cast<size_t>(logits_row_[i]) * vocab_size, vocab_size);
  };
  threads->RunJobs(count, [&](int i) {
    bad[i] = FirstBadLogit(logits_of(i));
    if (bad[i] < 0) rows[i] = DraftRow(logits_of(i), session_->params(), length);
  });
  for (int i = 0; i < count; ++i) {
    if (bad[i] < 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("draft logits after node ",
                                                   drafter_->frontier()[i], ": token ", bad[i],
                                                   " is ", logits_of(i)[bad[i]]));
  }
  drafter_->Grow(rows);
  if (level_ == 0) {
    // All tokens of the roots have their KV now: what the roots' parents share joins the prefix.
    std::vector<KvNode> parents;
    for (KvNode root : roots_) parents.push_back(blocks_->parent(session_->sequence(), root));
    auto moved = blocks_->Commit(session_->sequence(), parents, commits);
    if (!moved.ok()) return moved.status();
  }
  ++level_;
  return absl::OkStatus();
}

}  // namespace coppice
