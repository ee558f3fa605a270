// The state that a draft node keeps for one sequence: its tokens and their KV trie. Every request
// is matched against the trie, so late, lost and repeated rounds cost time but never correctness.
// Owned by DraftService's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/params.h"
#include "model/kv/block_manager.h"
#include "model/kv/prefix_readers.h"
#include "model/kv/step_builder.h"

namespace coppice::draft_node {

class DraftSession {
 public:
  // *blocks must outlive the session. prompt is not empty.
  DraftSession(decoding::DecodingParams params, std::vector<TokenId> prompt,
               model::BlockManager* blocks);
  ~DraftSession();
  DraftSession(const DraftSession&) = delete;
  DraftSession& operator=(const DraftSession&) = delete;

  const decoding::DecodingParams& params() const { return params_; }
  // Forests have the log-probability of each node.
  void ShowLogProbs() { log_probs_ = true; }
  bool log_probs() const { return log_probs_; }
  model::SequenceHandle sequence() const { return sequence_; }
  int prompt_length() const { return prompt_length_; }
  // True until the KV of all prompt tokens except the last has been computed. If the session was
  // opened in the middle of a sequence (fail-over): the KV of all stable tokens except the last.
  bool prefilling() const;
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
  // The trie node at the end of the stable tokens. Adds missing nodes (which have no KV yet) and
  // appends them to *missing.
  absl::StatusOr<model::KvNode> StableNode(std::vector<std::pair<model::KvNode, TokenId>>* missing);

 private:
  int prefill_target() const;

  decoding::DecodingParams params_;
  bool log_probs_ = false;
  std::vector<TokenId> tokens_;  // prompt, then the stable generated tokens
  int prompt_length_;
  int stable_length_ = 0;
  uint64_t stable_hash_;
  OutputFormat::State stable_format_state_ = 0;
  model::BlockManager* blocks_;
  model::SequenceHandle sequence_;
};

}  // namespace coppice::draft_node
