// The state that a draft node keeps for one sequence: its tokens, their KV trie, and the target's
// states that have come for rows yet to compute. Every request is matched against the trie, so
// late, lost and repeated rounds cost time but never correctness. Owned by DraftService's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/draft_request.h"
#include "decoding/params.h"
#include "draft_node/held_states.h"
#include "model/kv/block_manager.h"
#include "model/kv/prefix_readers.h"
#include "model/kv/step_builder.h"
#include "model/model_config.h"

namespace coppice::draft_node {

// What the rows of a draft take of its target.
struct StateNeeds {
  model::TargetStates::Use use = model::TargetStates::Use::kNone;
  int columns = 0;  // of a state
};
StateNeeds StateNeedsOf(const model::ModelConfig& draft);

// A known token without KV, which becomes a row.
struct MissingRow {
  model::KvNode node = model::kNoKv;
  TokenId token = 0;
  absl::Span<const uint16_t> state;  // [columns] bf16; empty if the draft takes none
};

class DraftSession {
 public:
  // *blocks must outlive the session. prompt is not empty.
  DraftSession(decoding::DecodingParams params, std::vector<TokenId> prompt,
               model::BlockManager* blocks, const StateNeeds& states = {});
  ~DraftSession();
  DraftSession(const DraftSession&) = delete;
  DraftSession& operator=(const DraftSession&) = delete;

  const decoding::DecodingParams& params() const { return params_; }
  // Forests have the log-probability of each node.
  void ShowLogProbs() { log_probs_ = true; }
  bool log_probs() const { return log_probs_; }
  model::SequenceHandle sequence() const { return sequence_; }
  int prompt_length() const { return prompt_length_; }
  bool takes_states() const { return states_.columns() > 0; }
  // The number of the token at position 0 of the KV. A row has the state of the token before it, so
  // the first token, number 0, has none. (Of a block drafter the row is that state alone: its
  // position is that of the token before.)
  int first_row() const { return first_row_; }
  // True until the KV of all prompt tokens except the last has been computed. If the session was
  // opened in the middle of a sequence (fail-over): the KV of all stable tokens except the last.
  bool prefilling() const;
  // True if prefilling goes on only when the state of the next row comes.
  bool LacksStates() const;
  bool CanPrefill() const { return prefilling() && !LacksStates(); }
  // Adopts the blocks of the prompt that others have computed meanwhile. True: an earlier prompt
  // computes the next blocks, so this one should wait for them.
  bool WaitsForPrefix(model::PrefixReaders* readers);
  // Adds at most `budget` prefill rows. Tokens that the cache has are copied instead: see
  // BlockManager::AdoptBeginning. ResourceExhausted: the pool is full.
  absl::Status AppendPrefill(int budget, model::StepBuilder* step, std::vector<KvCopy>* copies);

  // All roots now share `length` generated tokens, and `added` are the last of them. OutOfRange if
  // some tokens before `added` never arrived.
  absl::Status ExtendStable(int length, absl::Span<const TokenId> added);
  // Generated length and path hash at the end of the stable tokens.
  int stable_length() const { return stable_length_; }
  uint64_t stable_hash() const { return stable_hash_; }
  // The state of the output's format after the stable tokens. 0: no format.
  OutputFormat::State stable_format_state() const { return stable_format_state_; }
  // The stable generated tokens.
  absl::Span<const TokenId> stable_tokens() const {
    return absl::MakeConstSpan(tokens_).subspan(prompt_length_);
  }
  // The trie node at the end of the stable tokens. Adds missing nodes and appends them to *missing.
  // InvalidArgument: the state of one of them has not come.
  absl::StatusOr<model::KvNode> StableNode(std::vector<MissingRow>* missing);
  // The node of `token` below `parent`. Without one it is added and appended to *missing, and gets
  // its state from the caller.
  absl::StatusOr<model::KvNode> Child(model::KvNode parent, TokenId token,
                                      std::vector<MissingRow>* missing);

  // Keeps the states of stable rows until those are computed; states of computed ones are ignored.
  // InvalidArgument: the rows are not those of stable tokens.
  absl::Status TakeStates(const decoding::RowStates& states);
  // All stable tokens have KV, so no state of theirs is needed any more.
  void DropStates() { states_.Clear(); }
  int held_states() const { return states_.rows(); }

 private:
  int prefill_target() const;
  // What BlockManager knows the token at a position of the KV by.
  TokenId KeyOf(int position, TokenId token) const;
  absl::Span<const TokenId> keys() const { return first_row_ == 0 ? tokens_ : keys_; }
  void Append(TokenId token);

  decoding::DecodingParams params_;
  bool log_probs_ = false;
  HeldStates states_;
  int first_row_;
  std::vector<TokenId> tokens_;  // prompt, then the stable generated tokens
  std::vector<TokenId> keys_;    // of tokens first_row_ and later, unless first_row_ is 0
  int prompt_length_;
  int stable_length_ = 0;
  uint64_t stable_hash_;
  OutputFormat::State stable_format_state_ = 0;
  model::BlockManager* blocks_;
  model::SequenceHandle sequence_;
};

}  // namespace coppice::draft_node
