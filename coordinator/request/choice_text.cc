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
    AddOffset(token);
    settled +=
        Settle(detokenizer_.Append(absl::MakeConstSpan(&token, 1)), tokens_.size() >= min_tokens_);
  }
  return settled;
}

void ChoiceText::AddOffset(TokenId token) {
  using Effect = tokenizer::Detokenizer::Effect;
  const Effect effect = detokenizer_.EffectOf(token);
  if (effect == Effect::kEnds) CountHeldCharacter();
  offsets_.push_back(characters_ + (effect == Effect::kEnds ? 1 : 0));
  if (effect != Effect::kHasNoText) settled_tokens_ = offsets_.size();
}

void ChoiceText::CountHeldCharacter() {
  for (size_t i = settled_tokens_; i < offsets_.size(); ++i) ++offsets_[i];
}

std::string ChoiceText::Finish() {
  const std::string rest = stop() ? "" : detokenizer_.Finish();
  if (!rest.empty()) CountHeldCharacter();
  settled_tokens_ = offsets_.size();
  if (stop()) return "";
  std::string settled = Settle(rest, tokens_.size() >= min_tokens_);
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
