#include "coordinator/request/choice_text.h"

#include <algorithm>

namespace coppice::coordinator {

ChoiceText::ChoiceText(const tokenizer::Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                       const GenerateRequest& request)
    : detokenizer_(tokenizer, prompt, request.skip_special_tokens),
      matcher_(request.params.stop_strings, request.include_stop),
      min_tokens_(request.params.min_tokens),
      tokenizer_(tokenizer),
      skips_special_(request.skip_special_tokens) {
  if (request.syntax != nullptr) parser_.emplace(request.syntax);
}

std::string ChoiceText::Append(absl::Span<const TokenId> tokens) {
  std::string settled;
  for (const TokenId token : tokens) {
    if (stop()) break;
    tokens_.push_back(token);
    AddOffset(token);
    NoteSpecial(token);
    settled +=
        Settle(detokenizer_.Append(absl::MakeConstSpan(&token, 1)), tokens_.size() >= min_tokens_);
    Divide(/*ended=*/false);
  }
  return settled;
}

void ChoiceText::NoteSpecial(TokenId token) {
  if (!parser_ || !skips_special_) return;  // without them its name is part of the text
  if (!tokenizer_->TokenBytes(token, /*skip_special=*/true).empty()) return;
  std::string name = tokenizer_->TokenBytes(token, /*skip_special=*/false);
  if (!name.empty()) specials_.emplace_back(given_, std::move(name));
}

void ChoiceText::Divide(bool ended) {
  if (!parser_) return;
  const bool reasoned = parser_->in_reasoning();
  const auto give = [this](size_t end) {
    parser_->AppendText(absl::string_view(text_).substr(divided_, end - divided_));
    divided_ = end;
  };
  for (; !specials_.empty() && specials_.front().first <= text_.size(); specials_.pop_front()) {
    give(specials_.front().first);
    parser_->AppendSpecial(specials_.front().second);
  }
  give(text_.size());
  if (!ended && (reasoned || parser_->in_reasoning())) reasoning_tokens_ = tokens_.size();
  if (ended) parser_->Finish();
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
  std::string settled;
  if (!stop()) {
    settled = Settle(rest, tokens_.size() >= min_tokens_);
    const std::string held = matcher_.Finish();
    text_ += held;
    settled += held;
  }
  Divide(/*ended=*/true);
  return settled;
}

std::string ChoiceText::Settle(const std::string& piece, bool search) {
  characters_ +=
      std::count_if(piece.begin(), piece.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
  given_ += piece.size();
  std::string settled = search ? matcher_.Append(piece) : piece;
  text_ += settled;
  return settled;
}

}  // namespace coppice::coordinator
