#include "draft_node/draft_session.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "sampling/rng.h"

namespace coppice::draft_node {

StateNeeds StateNeedsOf(const model::ModelConfig& draft) {
  if (!draft.takes_states()) return {};
  return {draft.states.use, draft.hidden_size};
}

DraftSession::DraftSession(decoding::DecodingParams params, std::vector<TokenId> prompt,
                           model::BlockManager* blocks, const StateNeeds& states)
    : params_(std::move(params)),
      states_(states.columns),
      first_row_(states.columns > 0 ? 1 : 0),
      prompt_length_(static_cast<int>(prompt.size())),
      stable_hash_(sampling::kRootHash),
      blocks_(blocks) {
  for (const TokenId token : prompt) Append(token);
  decoding::SetPrompt(tokens_, &params_);
  if (params_.format != nullptr) stable_format_state_ = params_.format->Start();
  int cached = 0;
  sequence_ = blocks_->Open(keys(), &cached);
}

DraftSession::~DraftSession() { blocks_->Close(sequence_); }

// All rows depend on the first token, also where it has no row, so it is a part of the first key:
// sequences that begin differently share no KV. Distinct first tokens give distinct keys, none of
// them negative.
TokenId DraftSession::KeyOf(int position, TokenId token) const {
  if (position > 0 || first_row_ == 0) return token;
  constexpr uint32_t kOdd = 0x9e3779b1, kMask = 0x7fffffff;
  return static_cast<TokenId>(static_cast<uint32_t>(token) ^
                              (static_cast<uint32_t>(tokens_[0]) * kOdd & kMask));
}

void DraftSession::Append(TokenId token) {
  const int position = static_cast<int>(tokens_.size()) - first_row_;
  if (first_row_ > 0 && position >= 0) keys_.push_back(KeyOf(position, token));
  tokens_.push_back(token);
}

int DraftSession::prefill_target() const {
  const bool fresh = blocks_->nodes(sequence_) == 0;
  const int tokens = fresh ? static_cast<int>(tokens_.size()) : prompt_length_;
  return std::max(0, tokens - 1 - first_row_);
}

bool DraftSession::prefilling() const {
  return blocks_->prefix_length(sequence_) < prefill_target();
}

bool DraftSession::LacksStates() const {
  return takes_states() && prefilling() &&
         states_.Find(blocks_->prefix_length(sequence_) + 1).empty();
}

bool DraftSession::WaitsForPrefix(model::PrefixReaders* readers) {
  if (blocks_->nodes(sequence_) > 0) return false;
  blocks_->Adopt(sequence_, keys());
  return readers->MustWait(keys(), blocks_->prefix_length(sequence_));
}

absl::Status DraftSession::AppendPrefill(int budget, model::StepBuilder* step,
                                         std::vector<KvCopy>* copies) {
  blocks_->AdoptBeginning(sequence_, keys(), copies);
  const int begin = blocks_->prefix_length(sequence_);
  int count = std::min(budget, prefill_target() - begin);
  if (takes_states()) count = states_.CountFrom(begin + 1, count);
  if (count <= 0) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const std::vector<int32_t> slots,
                           blocks_->AppendPrefix(sequence_, keys().subspan(begin, count)));
  const int row = step->rows();
  step->AddPrefixRows(sequence_, absl::MakeConstSpan(tokens_).subspan(begin + first_row_, count),
                      slots);
  if (!takes_states()) return absl::OkStatus();
  for (int i = 0; i < count; ++i) step->SetState(row + i, states_.Find(begin + i + 1));
  states_.DropBelow(begin + count + 1);
  return absl::OkStatus();
}

absl::Status DraftSession::ExtendStable(int length, absl::Span<const TokenId> added) {
  if (length < stable_length_ || length - stable_length_ > static_cast<int>(added.size())) {
    return absl::OutOfRangeError(absl::StrCat("stable_length: session has ", stable_length_,
                                              " tokens, request says ", length, " and brings ",
                                              added.size()));
  }
  for (TokenId token : added.subspan(added.size() - (length - stable_length_))) {
    Append(token);
    stable_hash_ = sampling::ExtendHash(stable_hash_, token);
    if (params_.format != nullptr)
      stable_format_state_ = params_.format->Next(stable_format_state_, token);
  }
  stable_length_ = length;
  return absl::OkStatus();
}

absl::StatusOr<model::KvNode> DraftSession::Child(model::KvNode parent, TokenId token,
                                                  std::vector<MissingRow>* missing) {
  const int position = blocks_->prefix_length(sequence_) + blocks_->chain_length(sequence_, parent);
  const TokenId key = KeyOf(position, token);
  model::KvNode child = blocks_->FindChild(sequence_, parent, key);
  if (child != model::kNoKv) return child;
  COPPICE_ASSIGN_OR_RETURN(child, blocks_->AddNode(sequence_, parent, key));
  missing->push_back({child, token, {}});
  return child;
}

absl::StatusOr<model::KvNode> DraftSession::StableNode(std::vector<MissingRow>* missing) {
  model::KvNode node = model::kPrefixEnd;
  const int prefix = blocks_->prefix_length(sequence_) + first_row_;  // tokens
  const int tokens = static_cast<int>(tokens_.size());
  if (prefix > tokens) {
    return absl::InvalidArgumentError(absl::StrCat("stable_length: ", stable_length_,
                                                   " tokens, but all roots of an earlier round ",
                                                   "shared ", prefix - prompt_length_));
  }
  for (int i = prefix; i < tokens; ++i) {
    const size_t known = missing->size();
    COPPICE_ASSIGN_OR_RETURN(node, Child(node, tokens_[i], missing));
    if (!takes_states() || missing->size() == known) continue;
    missing->back().state = states_.Find(i);
    if (missing->back().state.empty()) return MissingState(i);
  }
  return node;
}

absl::Status DraftSession::TakeStates(const decoding::RowStates& states) {
  if (states.count == 0) return absl::OkStatus();
  const uint64_t end = uint64_t{states.first} + states.count;
  if (states.first < 1 || end > tokens_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("states.first: rows ", states.first, " to ", end - 1, ", expected 1 to ",
                     tokens_.size() - 1, ", those of the prompt ", "and of stable tokens"));
  }
  states_.Add(static_cast<int>(states.first),
              absl::MakeConstSpan(states.values).first(size_t{states.count} * states_.columns()));
  states_.DropBelow(blocks_->prefix_length(sequence_) + 1);
  return absl::OkStatus();
}

}  // namespace coppice::draft_node
