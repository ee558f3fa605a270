// A target and a draft model in one process, with the production prefill, forest builder, verify
// step and commit, but no sockets. One sequence at a time. coppice-lab measures methods on it, and
// tests/worker compares its results with and without drafts. Thread-compatible.
//
//   replica->Open(prompt, params, /*drafts=*/true);
//   while (!replica->decoder().finished()) {
//     forest = replica->Draft(width, depth)   (from the second round on), or DraftForest::Empty
//     verdict = replica->Round(forest);
//   }
//   replica->Close();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "draft_node/draft_session.h"
#include "draft_node/forest_builder.h"
#include "model/model_runner.h"
#include "plan/step_limits.h"
#include "worker/row_states.h"
#include "worker/sent_states.h"
#include "worker/sequence.h"

namespace coppice::lab {

struct LocalReplicaOptions {
  std::string target_dir;                 // Hugging Face folder
  std::string draft_dir;                  // empty: no draft model
  int64_t kv_bytes = int64_t{256} << 20;  // of either pool
  int threads = 1;
  std::string backend = "cpu";  // BackendOptions::kind
  bool exact = false;           // BackendOptions
  // ModelRunnerOptions::weight_dtype of the target and of the draft.
  std::string target_weights = "auto", draft_weights = "auto";
  bool device_forests = true;      // ModelRunnerOptions
  bool free_windows = true;        // ModelRunnerOptions
  int chunk = 256;                 // prompt or path tokens per pass
  int max_rows = kDefaultMaxRows;  // of a pass
  // Gives rows as candidate lists, like the ranks of a tensor-parallel target.
  bool always_list = false;
};

class LocalReplica {
 public:
  // Errors name the folder; InvalidArgument when the vocabularies differ.
  static absl::StatusOr<std::unique_ptr<LocalReplica>> Load(const LocalReplicaOptions& options);

  int vocab_size() const { return target_->vocab_size(); }
  int max_positions() const;
  bool has_draft() const { return draft_ != nullptr; }

  // Starts a sequence and prefills its prompt except the last token. InvalidArgument: the prompt is
  // empty, or no decoder serves the parameters. draft_knows_format: of params.
  absl::Status Open(const std::vector<TokenId>& prompt, const decoding::DecodingParams& params,
                    bool drafts, bool draft_knows_format = true);
  const decoding::BeamDecoder& decoder() const { return *sequence_->decoder; }
  // The forest that a draft node would send now. Not for the first round, whose root is the prompt.
  absl::StatusOr<decoding::DraftForest> Draft(int width, int depth);
  // One target pass over the roots and the forest, the verdict, and the KV commit.
  absl::StatusOr<decoding::Verdict> Round(decoding::DraftForest forest);
  void Close();

  // Has the rounds of the open sequence keep the scores of its tokens, with this many alternatives.
  void KeepScores(int top) { sequence_->scores.top = top; }
  // Has the rounds of the open sequence keep what they drafted and decided.
  void ShowRounds() {
    sequence_->shows_rounds = true;
    if (session_ != nullptr) session_->ShowLogProbs();
  }
  const std::optional<decoding::RoundForest>& round_forest() const {
    return sequence_->round_forest;
  }
  // The scores of the tokens of a hypothesis.
  std::vector<TokenScore> Scores(absl::Span<const TokenId> tokens) const {
    return sequence_->scores.Of(decoder().paths(), tokens);
  }

  // Raw logits after prompt and tokens[0, i) for i = 0..tokens.size(), [tokens.size() + 1, vocab].
  // No sequence may be open. Unimplemented: the draft takes states of the target.
  absl::StatusOr<std::vector<float>> TargetLogits(const std::vector<TokenId>& prompt,
                                                  absl::Span<const TokenId> tokens);
  absl::StatusOr<std::vector<float>> DraftLogits(const std::vector<TokenId>& prompt,
                                                 absl::Span<const TokenId> tokens);

  // For tests. draft: nullptr without one.
  model::ModelRunner* target() { return target_.get(); }
  model::ModelRunner* draft() { return draft_.get(); }
  // Checks the invariants of both KV tries.
  absl::Status CheckIntegrity() const;
  int64_t target_blocks_used() const { return target_->blocks()->counts().used; }
  int64_t draft_blocks_used() const { return draft_->blocks()->counts().used; }

 private:
  LocalReplica(std::unique_ptr<comm::Communicator> single, int chunk)
      : single_(std::move(single)), chunk_(chunk) {}
  absl::Status Prefill(model::ModelRunner* runner, model::SequenceHandle sequence,
                       absl::Span<const TokenId> prompt);
  absl::Status AddStates(decoding::DraftRequest* request);
  absl::Status PrefillDraft();
  absl::StatusOr<std::vector<float>> PathLogits(model::ModelRunner* runner,
                                                const std::vector<TokenId>& prompt,
                                                absl::Span<const TokenId> tokens);

  std::unique_ptr<comm::Communicator> single_;
  const int chunk_;
  std::unique_ptr<model::ModelRunner> target_, draft_;
  std::unique_ptr<worker::Sequence> sequence_;
  std::unique_ptr<draft_node::DraftSession> session_;
  std::unique_ptr<worker::PoolStates> states_;  // nullptr: the draft takes none
  worker::SentStates sent_states_;
};

}  // namespace coppice::lab
