// The scores of tokens in the form that answers show: with the bytes of the token and its position
// in the text (docs/api.md 3, `logprobs`). Made by request, written by response_json. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/request/choice_text.h"
#include "plan/token_score.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// How a token is named: by its bytes, or by its id ("token_id:17").
enum class TokenNames { kBytes, kIds };

struct ShownToken {
  std::string bytes;  // not always valid UTF-8
  std::string name;   // set with kIds, else empty
};

struct TokenLogprob {
  ShownToken token;
  std::optional<double> log_prob;  // nats; nullopt: the first token of a prompt
  std::vector<std::pair<ShownToken, double>> top;
  size_t offset = 0;  // characters of the text before it
};

// Appends the settled tokens of `text` from index `from` on. scores: of at least all its tokens.
// first_offset: characters before the text.
void ShowTokens(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                absl::Span<const TokenScore> scores, size_t from, size_t first_offset,
                TokenNames names, std::vector<TokenLogprob>* shown);

// A prompt as the beginning of answers with `echo`. scores: of its tokens from the second on.
std::vector<TokenLogprob> ShowPrompt(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                                     absl::Span<const TokenScore> scores, TokenNames names);

}  // namespace coppice::coordinator
