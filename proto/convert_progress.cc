#include <cmath>

#include "base/printable_name.h"
#include "base/status.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "proto/field_checks.h"

namespace coppice::proto {

using wire::Bad;
using wire::CheckEntries;
using wire::CheckLength;
using wire::CheckRange;
using wire::Fill;
using wire::kMostStatistic;
using wire::ToVector;

namespace {

int32_t StopToken(const decoding::Hypothesis& hypothesis) {
  return hypothesis.finished && !hypothesis.tokens.empty() ? hypothesis.tokens.back() : -1;
}

// -inf is allowed: the score of probability 0. +inf and NaN are not.
absl::Status CheckScore(const char* field, double value) {
  if (std::isnan(value)) return Bad(field, "is NaN");
  return value == INFINITY ? Bad(field, "is infinite") : absl::OkStatus();
}

absl::Status Within(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(field, ".", status.message()));
}

// A log-probability: not NaN, at most 0.
absl::Status CheckLogProb(absl::string_view field, double value) {
  if (value <= 0) return absl::OkStatus();
  return Bad(field, absl::StrCat(value, " is not a log-probability"));
}

absl::StatusOr<coppice::TokenScore> ScoreFromMessage(const proto::TokenScore& message,
                                                     const ProgressLimits& limits) {
  COPPICE_RETURN_IF_ERROR(CheckLogProb("log_prob", message.log_prob()));
  COPPICE_RETURN_IF_ERROR(CheckRange("top_tokens: length", int64_t{message.top_tokens_size()}, 0,
                                     int64_t{*limits.alternatives}));
  COPPICE_RETURN_IF_ERROR(CheckEntries("top_tokens", message.top_tokens(), 0, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(
      CheckLength("top_log_probs", message.top_log_probs_size(), message.top_tokens_size()));
  coppice::TokenScore score;
  score.log_prob = message.log_prob();
  for (int i = 0; i < message.top_tokens_size(); ++i) {
    COPPICE_RETURN_IF_ERROR(CheckLogProb("top_log_probs", message.top_log_probs(i)));
    score.top.emplace_back(message.top_tokens(i), message.top_log_probs(i));
  }
  return score;
}

// One score for each of `tokens` tokens; none if no scores are requested.
template <class Messages>
absl::Status ReadScores(const Messages& messages, const ProgressLimits& limits, size_t tokens,
                        std::vector<coppice::TokenScore>* scores) {
  COPPICE_RETURN_IF_ERROR(CheckLength("length", messages.size(), limits.alternatives ? tokens : 0));
  for (int i = 0; i < messages.size(); ++i) {
    auto score = ScoreFromMessage(messages[i], limits);
    if (!score.ok()) return wire::BadEntry("entry", i, score.status().message());
    scores->push_back(*std::move(score));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view field, uint64_t value) {
  if (value <= kMostStatistic) return absl::OkStatus();
  return Bad(field, absl::StrCat(value, " is more than ", kMostStatistic));
}

absl::Status CheckStats(const proto::SequenceStats& stats, int most_layers) {
  if (stats.method() != "none" && decoding::FindMethod(stats.method()) == nullptr)
    return Bad("method", absl::StrCat("\"", PrintableName(stats.method()), "\" is no method"));
  const std::pair<const char*, uint64_t> counts[] = {{"rounds", stats.rounds()},
                                                     {"target_passes", stats.target_passes()},
                                                     {"layers", stats.layers()},
                                                     {"beam_tokens", stats.beam_tokens()},
                                                     {"drafted_nodes", stats.drafted_nodes()},
                                                     {"accepted_nodes", stats.accepted_nodes()},
                                                     {"accepting_layers", stats.accepting_layers()},
                                                     {"overlap_layers", stats.overlap_layers()},
                                                     {"cached_tokens", stats.cached_tokens()},
                                                     {"preemptions", stats.preemptions()},
                                                     {"suffix_rounds", stats.suffix_rounds()}};
  for (const auto& [field, value] : counts) COPPICE_RETURN_IF_ERROR(CheckCount(field, value));
  if (stats.plain_rounds() > stats.rounds()) {
    return Bad("plain_rounds",
               absl::StrCat(stats.plain_rounds(), " is not in [0, ", stats.rounds(), "]"));
  }
  COPPICE_RETURN_IF_ERROR(CheckRange("accepted_by_layer: length",
                                     int64_t{stats.accepted_by_layer_size()}, 0,
                                     int64_t{most_layers}));
  for (uint64_t accepted : stats.accepted_by_layer())
    COPPICE_RETURN_IF_ERROR(CheckCount("accepted_by_layer", accepted));
  const std::pair<const char*, double> values[] = {
      {"draft_width_sum", stats.draft_width_sum()}, {"draft_depth_sum", stats.draft_depth_sum()},
      {"overlap_sum", stats.overlap_sum()},         {"queue_ms", stats.queue_ms()},
      {"prefill_ms", stats.prefill_ms()},           {"draft_ms", stats.draft_ms()},
      {"draft_wait_ms", stats.draft_wait_ms()},     {"verify_ms", stats.verify_ms()}};
  for (const auto& [field, value] : values)
    COPPICE_RETURN_IF_ERROR(CheckRange(field, value, 0.0, kMostStatistic));
  return absl::OkStatus();
}

}  // namespace

proto::Hypothesis HypothesisToMessage(const decoding::Hypothesis& hypothesis) {
  proto::Hypothesis message;
  Fill(hypothesis.tokens, message.mutable_tokens());
  message.set_joint_log_probability(hypothesis.joint_log_probability);
  message.set_score(hypothesis.score);
  message.set_finished(hypothesis.finished);
  message.set_stop_token(StopToken(hypothesis));
  return message;
}

absl::StatusOr<decoding::Hypothesis> HypothesisFromMessage(const proto::Hypothesis& message,
                                                           int vocab_size) {
  COPPICE_RETURN_IF_ERROR(CheckEntries("tokens", message.tokens(), 0, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckScore("joint_log_probability", message.joint_log_probability()));
  COPPICE_RETURN_IF_ERROR(CheckScore("score", message.score()));
  decoding::Hypothesis hypothesis;
  hypothesis.tokens = ToVector(message.tokens());
  hypothesis.joint_log_probability = message.joint_log_probability();
  hypothesis.score = message.score();
  hypothesis.finished = message.finished();
  if (message.stop_token() != StopToken(hypothesis)) {
    return Bad("stop_token", absl::StrCat(message.stop_token(), ", want ", StopToken(hypothesis)));
  }
  return hypothesis;
}

proto::SequenceStats StatsToMessage(const DecodingStats& stats) {
  proto::SequenceStats message;
  message.set_method(stats.method);
  message.set_lossless(stats.lossless);
  message.set_rounds(stats.rounds);
  message.set_plain_rounds(stats.plain_rounds);
  message.set_target_passes(stats.target_passes);
  message.set_layers(stats.layers);
  message.set_beam_tokens(stats.beam_tokens);
  message.set_drafted_nodes(stats.drafted_nodes);
  message.set_accepted_nodes(stats.accepted_nodes);
  Fill(stats.accepted_by_layer, message.mutable_accepted_by_layer());
  message.set_accepting_layers(stats.accepting_layers);
  message.set_draft_width_sum(stats.draft_width_sum);
  message.set_draft_depth_sum(stats.draft_depth_sum);
  message.set_overlap_sum(stats.overlap_sum);
  message.set_overlap_layers(stats.overlap_layers);
  message.set_cached_tokens(stats.cached_tokens);
  message.set_preemptions(stats.preemptions);
  message.set_suffix_rounds(stats.suffix_rounds);
  message.set_queue_ms(stats.queue_ms);
  message.set_prefill_ms(stats.prefill_ms);
  message.set_draft_ms(stats.draft_ms);
  message.set_draft_wait_ms(stats.draft_wait_ms);
  message.set_verify_ms(stats.verify_ms);
  return message;
}

absl::StatusOr<DecodingStats> StatsFromMessage(const proto::SequenceStats& message,
                                               int most_layers) {
  COPPICE_RETURN_IF_ERROR(CheckStats(message, most_layers));
  coppice::DecodingStats stats;
  stats.method = message.method();
  stats.lossless = message.lossless();
  stats.rounds = message.rounds();
  stats.plain_rounds = message.plain_rounds();
  stats.target_passes = message.target_passes();
  stats.layers = message.layers();
  stats.beam_tokens = message.beam_tokens();
  stats.drafted_nodes = message.drafted_nodes();
  stats.accepted_nodes = message.accepted_nodes();
  stats.accepted_by_layer.assign(message.accepted_by_layer().begin(),
                                 message.accepted_by_layer().end());
  stats.accepting_layers = message.accepting_layers();
  stats.draft_width_sum = message.draft_width_sum();
  stats.draft_depth_sum = message.draft_depth_sum();
  stats.overlap_sum = message.overlap_sum();
  stats.overlap_layers = message.overlap_layers();
  stats.cached_tokens = message.cached_tokens();
  stats.preemptions = message.preemptions();
  stats.suffix_rounds = message.suffix_rounds();
  stats.queue_ms = message.queue_ms();
  stats.prefill_ms = message.prefill_ms();
  stats.draft_ms = message.draft_ms();
  stats.draft_wait_ms = message.draft_wait_ms();
  stats.verify_ms = message.verify_ms();
  return stats;
}

proto::TokenScore ScoreToMessage(const coppice::TokenScore& score) {
  proto::TokenScore message;
  message.set_log_prob(score.log_prob);
  for (const auto& [token, log_prob] : score.top) {
    message.add_top_tokens(token);
    message.add_top_log_probs(log_prob);
  }
  return message;
}

absl::StatusOr<SequenceProgress> ProgressFromMessage(const proto::SequenceUpdate& message,
                                                     const ProgressLimits& limits) {
  const int64_t more = int64_t{limits.max_tokens} - static_cast<int64_t>(limits.tokens_so_far);
  COPPICE_RETURN_IF_ERROR(
      CheckRange("stable_tokens: length", int64_t{message.stable_tokens_size()}, 0, more));
  COPPICE_RETURN_IF_ERROR(
      CheckEntries("stable_tokens", message.stable_tokens(), 0, limits.vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckRange("hypotheses: length", int64_t{message.hypotheses_size()},
                                     message.finished() ? limits.min_hypotheses : 0,
                                     message.finished() ? limits.max_hypotheses : 0));
  COPPICE_RETURN_IF_ERROR(CheckRange("prompt_scores: length", int64_t{message.prompt_scores_size()},
                                     0, limits.prompt_scores));
  SequenceProgress progress;
  COPPICE_RETURN_IF_ERROR(
      Within("stable_scores", ReadScores(message.stable_scores(), limits,
                                         message.stable_tokens_size(), &progress.stable_scores)));
  COPPICE_RETURN_IF_ERROR(
      Within("prompt_scores", ReadScores(message.prompt_scores(), limits,
                                         message.prompt_scores_size(), &progress.prompt_scores)));
  progress.stable_tokens = ToVector(message.stable_tokens());
  progress.finished = message.finished();
  for (int i = 0; i < message.hypotheses_size(); ++i) {
    const std::string field = absl::StrCat("hypotheses[", i, "]");
    auto hypothesis = HypothesisFromMessage(message.hypotheses(i), limits.vocab_size);
    COPPICE_RETURN_IF_ERROR(Within(field, hypothesis.status()));
    COPPICE_RETURN_IF_ERROR(
        Within(field, CheckRange("tokens: length", int64_t(hypothesis->tokens.size()), 0,
                                 int64_t{limits.max_tokens})));
    COPPICE_RETURN_IF_ERROR(
        Within(absl::StrCat(field, ".scores"),
               ReadScores(message.hypotheses(i).scores(), limits, hypothesis->tokens.size(),
                          &progress.hypothesis_scores.emplace_back())));
    progress.hypotheses.push_back(*std::move(hypothesis));
  }
  if (message.finished() && message.has_stats()) {
    auto stats = StatsFromMessage(message.stats(), limits.max_tokens);
    COPPICE_RETURN_IF_ERROR(Within("stats", stats.status()));
    progress.stats = *std::move(stats);
  }
  COPPICE_RETURN_IF_ERROR(CheckCount("kv_blocks_peak", message.kv_blocks_peak()));
  if (message.has_energy_joules()) {
    COPPICE_RETURN_IF_ERROR(
        CheckRange("energy_joules", message.energy_joules(), 0.0, kMostStatistic));
    progress.energy_joules = message.energy_joules();
  }
  return progress;
}

}  // namespace coppice::proto
