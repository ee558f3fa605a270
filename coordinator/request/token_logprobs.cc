#include "coordinator/request/token_logprobs.h"

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

ShownToken Name(const tokenizer::Tokenizer& tokenizer, TokenId token, TokenNames names) {
  return {tokenizer.TokenBytes(token, /*skip_special=*/false),
          names == TokenNames::kIds ? absl::StrCat("token_id:", token) : ""};
}

TokenLogprob ShowToken(const tokenizer::Tokenizer& tokenizer, TokenId token,
                       const TokenScore& score, size_t offset, TokenNames names) {
  TokenLogprob shown;
  shown.token = Name(tokenizer, token, names);
  shown.log_prob = score.log_prob;
  for (const auto& [other, log_prob] : score.top)
    shown.top.emplace_back(Name(tokenizer, other, names), log_prob);
  shown.offset = offset;
  return shown;
}

}  // namespace

void ShowTokens(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                absl::Span<const TokenScore> scores, size_t from, size_t first_offset,
                TokenNames names, std::vector<TokenLogprob>* shown) {
  for (size_t i = from; i < text.settled_tokens(); ++i) {
    shown->push_back(
        ShowToken(tokenizer, text.tokens()[i], scores[i], first_offset + text.offsets()[i], names));
  }
}

std::vector<TokenLogprob> ShowPrompt(const tokenizer::Tokenizer& tokenizer, const ChoiceText& text,
                                     absl::Span<const TokenScore> scores, TokenNames names) {
  std::vector<TokenLogprob> shown;
  for (size_t i = 0; i < text.tokens().size(); ++i) {
    const TokenScore score = i == 0 ? TokenScore() : scores[i - 1];
    shown.push_back(ShowToken(tokenizer, text.tokens()[i], score, text.offsets()[i], names));
    if (i == 0) shown.back().log_prob.reset();
  }
  return shown;
}

}  // namespace coppice::coordinator
