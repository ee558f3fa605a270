// What turns a row of logits into the probabilities that a choice is made from: sampling
// parameters, stop ids that are banned before min_tokens, and the output's format. Part of
// decoding::DecodingParams; read by processed_row and target_row. Plain values.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/output_format.h"
#include "base/types.h"
#include "sampling/repeated_ngrams.h"

namespace coppice::sampling {

// docs/algorithms.md 3: 3.1, 3.3, 3.4, 3.5. Greedy is multinomial at temperature 0.
enum class DecodingKind {
  kMultinomial,
  kBeamSampling,
  kBeamSamplingWithoutReplacement,
  kBeamSearch
};
absl::string_view DecodingKindName(DecodingKind kind);  // the API's spelling
absl::StatusOr<DecodingKind> ParseDecodingKind(absl::string_view name);

// Where the sampling parameters act on beams (docs/algorithms.md 1): on each row, or on the flat
// scores of a whole layer.
enum class SamplingScope { kRow, kRowRaw, kJoint, kRowCut };
absl::string_view SamplingScopeName(SamplingScope mode);  // "row", "row_raw", "joint", "rowcut"
absl::StatusOr<SamplingScope> ParseSamplingScope(absl::string_view name);
constexpr bool IsJoint(SamplingScope mode) {
  return mode == SamplingScope::kJoint || mode == SamplingScope::kRowCut;
}

// Smallest non-zero temperature. Dividing logits by less may overflow to infinity and then NaN.
inline constexpr double kLeastTemperature = 1e-6;

// Smallest repetition_penalty: a logit divided by less may overflow.
inline constexpr double kLeastRepetitionPenalty = 1e-6;

// A token of the prompt or of the path: its logit, divided by repetition_penalty if it is above 0
// and multiplied otherwise, changes by `nats`.
struct RepeatedToken {
  TokenId token = 0;
  double nats = 0;
};

// How logits become probabilities (docs/algorithms.md 1). The defaults change nothing.
struct SamplingParams {
  // Divides the logits. Below 1 sharpens the distribution, above 1 flattens it. 0: one-hot on the
  // argmax. Otherwise at least kLeastTemperature.
  double temperature = 1.0;
  // Keeps the top_k most likely tokens. 0: all.
  int top_k = 0;
  // Keeps the most likely tokens up to the first with which their mass exceeds top_p. 0 and 1: all.
  double top_p = 1.0;
  // Keeps tokens with at least this share of the largest probability. 0: all.
  double min_p = 0.0;
  // Nats, added to the logits before everything else. -inf bans a token.
  std::vector<std::pair<TokenId, double>> logit_bias;
  SamplingScope mode = SamplingScope::kRow;

  // Nats taken from the logit of a token for each time that the hypothesis has generated it, and
  // once if it has. Negative values favour such tokens.
  double frequency_penalty = 0;
  double presence_penalty = 0;
  // Divides the logit of every token of prompt and hypothesis if it is above 0, else multiplies it.
  // 1 changes nothing.
  double repetition_penalty = 1;
  // n: a token that would end an n-gram which prompt and hypothesis have already has probability 0.
  // 0: none.
  int no_repeat_ngram_size = 0;
  // The effect of the penalties after one path, when repetition_penalty is not 1. Filled by
  // SamplingAt (sampling/target_row.h); otherwise empty.
  std::vector<RepeatedToken> repeated;
  // The tokens that the format of the output allows after one path. Filled by SamplingAt; nullptr:
  // every token.
  std::shared_ptr<const AllowedTokens> allowed;

  // The row depends on the tokens of its path.
  bool penalises() const { return counts_tokens() || no_repeat_ngram_size > 0; }
  // One of the three penalties does.
  bool counts_tokens() const {
    return frequency_penalty != 0 || presence_penalty != 0 || repetition_penalty != 1;
  }
};

// Parameters that act on every row of a sequence.
struct RowParams {
  DecodingKind kind = DecodingKind::kMultinomial;

  // Before this many tokens, stop ids have probability 0.
  int min_tokens = 0;

  // Ids that end a hypothesis (EOS). Empty: only max_tokens ends it.
  std::vector<TokenId> stop_ids;

  // The tokens that the format of the output allows. Not part of the request: set by the node that
  // decodes it. nullptr: every token. A draft node may lack it; its drafts are then worse.
  std::shared_ptr<const OutputFormat> format;

  SamplingParams sampling;

  // The distinct ids of the prompt, ascending: repetition_penalty counts them. Not part of the
  // request: set by the node that decodes it (SetPrompt). nullptr: none.
  std::shared_ptr<const std::vector<TokenId>> prompt_ids;
  // The n-grams of the prompt, for no_repeat_ngram_size, set in the same way. nullptr: no prompt.
  std::shared_ptr<const RepeatedNgrams> prompt_ngrams;
};

}  // namespace coppice::sampling
