#include "coordinator/request/token_logprobs.h"

namespace coppice::coordinator {
namespace {

TokenLogprob ShowToken(const tokenizer::Tokenizer& tokenizer, TokenId token,
                       const TokenScore& score, size_t offset) {
  TokenLogprob shown;
  shown.token = tokenizer.TokenBytes(token, /*skip_special=*/false);
  shown.log_prob = score.log_prob;
  for (const auto& [other, log_prob] : score.top)
    shown.top.emplace_back(tokenizer.TokenBytes(other, /*skip_special=*/false), log_prob);
  shown.offset = offset;
  return shown;
}

}  // namespace

std::vector<TokenLogprob> ShowTokens(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                                     absl::Span<const TokenScore> scores, size_t from,
                                     size_t first_offset) {
  std::vector<TokenLogprob> shown;
  for (size_t i = from; i < text.tokens().size(); ++i) {
    shown.push_back(
        ShowToken(tokenizer, text.tokens()[i], scores[i], first_offset + text.offsets()[i]));
  }
  return shown;
}

std::vector<TokenLogprob> ShowPrompt(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                                     absl::Span<const TokenScore> scores) {
  std::vector<TokenLogprob> shown;
  for (size_t i = 0; i < text.tokens().size(); ++i) {
    const TokenScore score = i == 0 ? TokenScore() : scores[i - 1];
    shown.push_back(ShowToken(tokenizer, text.tokens()[i], score, text.offsets()[i]));
    if (i == 0) shown.back().log_prob.reset();
  }
  return shown;
}

}  // namespace coppice::coordinator
