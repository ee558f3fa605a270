// The only conversion between messages and structs. Every message received from another process
// passes through here before it is used. Lengths, ranges and structure are checked, and
// InvalidArgument names the field and the index. Called by the worker, the draft node and the
// coordinator. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/decoding_stats.h"
#include "base/trace_context.h"
#include "base/types.h"
#include "decoding/beam_decoder.h"
#include "decoding/draft_request.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "decoding/round_forest.h"
#include "plan/step_plan.h"
#include "plan/token_score.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "proto/plan.pb.h"

namespace coppice::proto {

// ---- control.proto
// params.method is resolved: the other end refuses a message that names none.
proto::Decoding DecodingToMessage(const decoding::DecodingParams& params);
// Checks the ranges that the algorithms need (widths >= 1, finite numbers, ...), not the API's
// limits.
absl::StatusOr<decoding::DecodingParams> DecodingFromMessage(const proto::Decoding& message);

// stop_token = the last token of a finished hypothesis, else -1.
proto::Hypothesis HypothesisToMessage(const decoding::Hypothesis& hypothesis);
absl::StatusOr<decoding::Hypothesis> HypothesisFromMessage(const proto::Hypothesis& message,
                                                           int vocab_size);

proto::TokenScore ScoreToMessage(const coppice::TokenScore& score);

proto::SequenceStats StatsToMessage(const DecodingStats& stats);
// Every number must be in [0, 1e15], so that sums of many stay finite. most_layers: of a draft.
absl::StatusOr<DecodingStats> StatsFromMessage(const proto::SequenceStats& message,
                                               int most_layers);

// Limits of a leader's report about one sequence.
struct ProgressLimits {
  int vocab_size = 0;
  int max_tokens = 0;        // tokens per hypothesis
  size_t tokens_so_far = 0;  // tokens of the stable prefix in earlier updates
  int64_t max_hypotheses = 0;
  int64_t min_hypotheses = 1;  // 0: all may be below min_score
  // Alternatives for the score of each token; nullopt: no scores are asked for.
  std::optional<int> alternatives;
  int64_t prompt_scores = 0;  // scores of prompt tokens that are still to come
};
// A SequenceUpdate whose fields have been checked.
struct SequenceProgress {
  std::vector<TokenId> stable_tokens;  // new ones
  bool finished = false;
  std::vector<decoding::Hypothesis> hypotheses;  // finished: up to max_hypotheses, best first
  // One for each token, if scores are requested.
  std::vector<coppice::TokenScore> stable_scores;
  std::vector<std::vector<coppice::TokenScore>> hypothesis_scores;
  std::vector<coppice::TokenScore> prompt_scores;  // new ones
  std::optional<coppice::DecodingStats> stats;     // finished
  std::optional<double> energy_joules;             // so far
};
// For an update without an error; the caller looks at error_code first.
absl::StatusOr<SequenceProgress> ProgressFromMessage(const proto::SequenceUpdate& message,
                                                     const ProgressLimits& limits);

proto::RoundForest RoundForestToMessage(const decoding::RoundForest& round);
// Checks everything but what only the rounds before could tell: that roots and outputs are paths.
absl::StatusOr<decoding::RoundForest> RoundForestFromMessage(const proto::RoundForest& message,
                                                             int vocab_size);

// Check the registration and the heartbeats of a node: names are printable and short, numbers are
// in range, ranks are in order.
absl::Status CheckRegistration(const proto::Register& registration);
absl::Status CheckNodeStatus(const proto::NodeStatus& status);
// Names become parts of JSON without escapes.
absl::Status CheckStepTrace(const proto::StepTrace& trace);

proto::Trace TraceToMessage(const coppice::TraceContext& trace);
// Without a trace if it is malformed: it serves log lines only.
coppice::TraceContext TraceFromMessage(const proto::Trace& message);

// Every token must be in [0, vocab_size). The error names `field` and the index.
absl::Status CheckTokens(absl::Span<const int32_t> tokens, int vocab_size, const char* field);

// ---- draft.proto
proto::Forest ForestToMessage(const decoding::DraftForest& forest);
absl::StatusOr<decoding::DraftForest> ForestFromMessage(const proto::Forest& message,
                                                        int vocab_size);

// Checks that the times the node measured are finite and not negative.
absl::Status CheckDraftTimes(const proto::DraftReply& reply);
// Joules; nullopt when there are none, or impossible ones.
std::optional<double> DraftEnergy(const proto::DraftReply& reply);

proto::RowStates StatesToMessage(const decoding::RowStates& states);
// columns: of the states that the draft takes, 0 if it takes none. trie_size: entries of the
// request's trie.
absl::StatusOr<decoding::RowStates> StatesFromMessage(const proto::RowStates& message, int columns,
                                                      int trie_size);

proto::DraftRequest DraftRequestToMessage(const decoding::DraftRequest& request);
// The hashes of the roots are not sent: decoding::RootHashes computes them from the tokens, with
// the hash of the stable ones.
absl::StatusOr<decoding::DraftRequest> DraftRequestFromMessage(const proto::DraftRequest& message,
                                                               int vocab_size,
                                                               int state_columns = 0);

// ---- plan.proto
proto::StepPlan PlanToMessage(const coppice::StepPlan& plan);
// Copies the arrays without a check. ModelRunner checks once whether the plan can be run
// (plan/plan_check.h).
absl::StatusOr<coppice::StepPlan> PlanFromMessage(const proto::StepPlan& message);

}  // namespace coppice::proto
