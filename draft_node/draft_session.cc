#include "draft_node/draft_session.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "sampling/rng.h"

namespace coppice::draft_node {

DraftSession::DraftSession(decoding::DecodingParams params, std::vector<TokenId> prompt,
                           model::BlockManager* blocks)
    : params_(std::move(params)),
      tokens_(std::move(prompt)),
      prompt_length_(static_cast<int>(tokens_.size())),
      stable_hash_(sampling::kRootHash),
      blocks_(blocks) {
  decoding::SetPrompt(tokens_, &params_);
  if (params_.format != nullptr) stable_format_state_ = params_.format->Start();
  int cached = 0;
  sequence_ = blocks_->Open(tokens_, &cached);
}

DraftSession::~DraftSession() { blocks_->Close(sequence_); }

int DraftSession::prefill_target() const {
  const bool fresh = blocks_->nodes(sequence_) == 0;
  return (fresh ? static_cast<int>(tokens_.size()) : prompt_length_) - 1;
}

bool DraftSession::prefilling() const {
  return blocks_->prefix_length(sequence_) < prefill_target();
}

bool DraftSession::WaitsForPrefix(model::PrefixReaders* readers) {
  if (blocks_->nodes(sequence_) > 0) return false;
  blocks_->Adopt(sequence_, tokens_);
  return readers->MustWait(tokens_, blocks_->prefix_length(sequence_));
}

absl::Status DraftSession::AppendPrefill(int budget, model::StepBuilder* step,
                                         std::vector<KvCopy>* copies) {
  blocks_->AdoptBeginning(sequence_, tokens_, copies);
  const int begin = blocks_->prefix_length(sequence_);
  const int count = std::min(budget, prefill_target() - begin);
  if (count <= 0) return absl::OkStatus();
  const auto chunk = absl::MakeConstSpan(tokens_).subspan(begin, count);
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int32_t> slots,
                           blocks_->AppendPrefix(sequence_, chunk));
  step->AddPrefixRows(sequence_, chunk, slots);
  return absl::OkStatus();
}

absl::Status DraftSession::ExtendStable(int length, absl::Span<const TokenId> added) {
  if (length < stable_length_ || length - stable_length_ > static_cast<int>(added.size())) {
    return absl::OutOfRangeError(absl::StrCat("stable_length: session has ", stable_length_,
                                              " tokens, request says ", length, " and brings ",
                                              added.size()));
  }
  for (TokenId token : added.subspan(added.size() - (length - stable_length_))) {
    tokens_.push_back(token);
    stable_hash_ = sampling::ExtendHash(stable_hash_, token);
    if (params_.format != nullptr)
      stable_format_state_ = params_.format->Next(stable_format_state_, token);
  }
  stable_length_ = length;
  return absl::OkStatus();
}

absl::StatusOr<model::KvNode> DraftSession::StableNode(
    std::vector<std::pair<model::KvNode, TokenId>>* missing) {
  model::KvNode node = model::kPrefixEnd;
  const int prefix = blocks_->prefix_length(sequence_);
  if (prefix > static_cast<int>(tokens_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("stable_length: ", stable_length_,
                                                   " tokens, but all roots of an earlier round ",
                                                   "shared ", prefix - prompt_length_));
  }
  for (size_t i = prefix; i < tokens_.size(); ++i) {
    model::KvNode child = blocks_->FindChild(sequence_, node, tokens_[i]);
    if (child == model::kNoKv) {
      COPPICE_ASSIGN_OR_RETURN(child, blocks_->AddNode(sequence_, node, tokens_[i]));
      missing->emplace_back(child, tokens_[i]);
    }
    node = child;
  }
  return node;
}

}  // namespace coppice::draft_node
