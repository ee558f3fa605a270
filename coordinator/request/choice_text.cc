#include "coordinator/request/choice_text.h"

#include <algorithm>

namespace coppice::coordinator {

ChoiceText::ChoiceText(const tokenizer::Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                       const GenerateRequest& request)
    : detokenizer_(tokenizer, prompt, request.skip_special_tokens),
      matcher_(request.params.stop_strings, request.include_stop),
      min_tokens_(request.params.min_tokens) {}

std::string ChoiceText::Append(absl::Span<const TokenId> tokens) {
  std::string settled;
  for (const TokenId token : tokens) {
    if (stop()) break;
    tokens_.push_back(token);
    offsets_.push_back(characters_);
    settled +=
        Settle(detokenizer_.Append(absl::MakeConstSpan(&token, 1)), tokens_.size() >= min_tokens_);
  }
  return settled;
}

std::string ChoiceText::Finish() {
  if (stop()) return "";
  std::string settled = Settle(detokenizer_.Finish(), tokens_.size() >= min_tokens_);
  const std::string held = matcher_.Finish();
  text_ += held;
  return settled + held;
}

std::string ChoiceText::Settle(const std::string& piece, bool search) {
  characters_ +=
      std::count_if(piece.begin(), piece.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
  std::string settled = search ? matcher_.Append(piece) : piece;
  text_ += settled;
  return settled;
}

}  // namespace coppice::coordinator
