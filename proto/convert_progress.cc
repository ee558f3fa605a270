#include <cmath>

#include "base/status.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice {

using namespace wire;

namespace {

int32_t StopToken(const Hypothesis& hypothesis) {
  return hypothesis.finished && !hypothesis.tokens.empty() ? hypothesis.tokens.back() : -1;
}

// -inf is the score of what has probability 0; nothing scores +inf.
absl::Status CheckScore(const char* field, double value) {
  if (std::isnan(value)) return Bad(field, "is NaN");
  return value == INFINITY ? Bad(field, "is infinite") : absl::OkStatus();
}

absl::Status Within(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(field, ".", status.message()));
}

absl::Status CheckStatistics(const proto::SequenceStats& stats, int most_layers) {
  if (stats.method() != "none" && FindMethod(stats.method()) == nullptr)
    return Bad("method", absl::StrCat("\"", stats.method(), "\" is no method"));
  COPPICE_RETURN_IF_ERROR(
      CheckRange("plain_rounds", int64_t{stats.plain_rounds()}, 0, int64_t{stats.rounds()}));
  COPPICE_RETURN_IF_ERROR(CheckRange("accepted_by_layer: length",
                                     int64_t{stats.accepted_by_layer_size()}, 0,
                                     int64_t{most_layers}));
  const std::pair<const char*, double> values[] = {{"accepted_width", stats.accepted_width()},
                                                   {"draft_width", stats.draft_width()},
                                                   {"draft_depth", stats.draft_depth()},
                                                   {"queue_ms", stats.queue_ms()},
                                                   {"prefill_ms", stats.prefill_ms()},
                                                   {"first_token_ms", stats.first_token_ms()},
                                                   {"draft_ms", stats.draft_ms()},
                                                   {"draft_wait_ms", stats.draft_wait_ms()},
                                                   {"verify_ms", stats.verify_ms()},
                                                   {"total_ms", stats.total_ms()}};
  for (const auto& [field, value] : values)
    COPPICE_RETURN_IF_ERROR(CheckRange(field, value, 0.0, kMostStatistic));
  return CheckRange("overlap", stats.overlap(), -kMostStatistic, kMostStatistic);
}

}  // namespace

proto::Hypothesis HypothesisToMessage(const Hypothesis& hypothesis) {
  proto::Hypothesis message;
  Fill(hypothesis.tokens, message.mutable_tokens());
  message.set_joint_log_probability(hypothesis.joint_log_probability);
  message.set_score(hypothesis.score);
  message.set_finished(hypothesis.finished);
  message.set_stop_token(StopToken(hypothesis));
  return message;
}

absl::StatusOr<Hypothesis> HypothesisFromMessage(const proto::Hypothesis& message, int vocab_size) {
  COPPICE_RETURN_IF_ERROR(CheckEntries("tokens", message.tokens(), 0, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckScore("joint_log_probability", message.joint_log_probability()));
  COPPICE_RETURN_IF_ERROR(CheckScore("score", message.score()));
  Hypothesis hypothesis;
  hypothesis.tokens = ToVector(message.tokens());
  hypothesis.joint_log_probability = message.joint_log_probability();
  hypothesis.score = message.score();
  hypothesis.finished = message.finished();
  if (message.stop_token() != StopToken(hypothesis)) {
    return Bad("stop_token", absl::StrCat(message.stop_token(), ", want ", StopToken(hypothesis)));
  }
  return hypothesis;
}

absl::StatusOr<SequenceProgress> ProgressFromMessage(const proto::SequenceUpdate& message,
                                                     const ProgressLimits& limits) {
  const int64_t more = int64_t{limits.max_tokens} - static_cast<int64_t>(limits.tokens_so_far);
  COPPICE_RETURN_IF_ERROR(
      CheckRange("stable_tokens: length", int64_t{message.stable_tokens_size()}, 0, more));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("stable_tokens", message.stable_tokens(), 0, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckRange("hypotheses: length", int64_t{message.hypotheses_size()},
                                     message.finished() ? 1 : 0,
                                     message.finished() ? limits.max_hypotheses : 0));
  SequenceProgress progress;
  progress.stable_tokens = ToVector(message.stable_tokens());
  progress.finished = message.finished();
  for (int i = 0; i < message.hypotheses_size(); ++i) {
    const std::string field = absl::StrCat("hypotheses[", i, "]");
    auto hypothesis = HypothesisFromMessage(message.hypotheses(i), limits.vocab_size);
    COPPICE_RETURN_IF_ERROR(Within(field, hypothesis.status()));
    COPPICE_RETURN_IF_ERROR(
        Within(field, CheckRange("tokens: length", int64_t(hypothesis->tokens.size()), 0,
                                 int64_t{limits.max_tokens})));
    progress.hypotheses.push_back(*std::move(hypothesis));
  }
  if (message.finished() && message.has_stats()) {
    COPPICE_RETURN_IF_ERROR(Within("stats", CheckStatistics(message.stats(), limits.max_tokens)));
    progress.stats = message.stats();
  }
  return progress;
}

}  // namespace coppice
