#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {

Detokenizer::Detokenizer(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
                         bool skip_special)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      spaces_to_drop_(tokenizer->LeadingSpacesDropped()) {
  AddBytes(prompt);
  pending_.erase(0, pending_.size() - IncompleteTail(pending_));
  prompt_pending_ = pending_.size();
}

void Detokenizer::AddBytes(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    const std::string bytes = tokenizer_->TokenBytes(token, skip_special_);
    size_t begin = 0;
    while (begin < bytes.size() && spaces_to_drop_ > 0) {
      if (bytes[begin] != ' ') {
        spaces_to_drop_ = 0;
      } else {
        ++begin;
        --spaces_to_drop_;
      }
    }
    pending_.append(bytes, begin);
  }
}

std::string Detokenizer::TakeSettled(size_t end) {
  size_t begin = 0;
  if (prompt_pending_ > 0 && end > 0) {
    // If an invalid part starts in the prompt, the prompt's own text already ends with U+FFFD for
    // it.
    const Utf8Char c = NextUtf8Char(absl::string_view(pending_).substr(0, end));
    if (!c.valid) begin = c.length;
    prompt_pending_ = 0;
  }
  std::string text = ValidUtf8(absl::string_view(pending_).substr(begin, end - begin));
  pending_.erase(0, end);
  return text;
}

Detokenizer::Effect Detokenizer::EffectOf(TokenId token) const {
  if (pending_.empty() || prompt_pending_ > 0) return Effect::kNothingHeld;
  const std::string bytes = tokenizer_->TokenBytes(token, skip_special_);
  if (bytes.empty()) return Effect::kHasNoText;
  const auto length = static_cast<size_t>(NextUtf8Char(pending_ + bytes).length);
  return length > pending_.size() ? Effect::kContinues : Effect::kEnds;
}

std::string Detokenizer::Append(absl::Span<const TokenId> tokens) {
  AddBytes(tokens);
  return TakeSettled(pending_.size() - IncompleteTail(pending_));
}

std::string Detokenizer::Finish() { return TakeSettled(pending_.size()); }

std::string Tokenizer::Decode(absl::Span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(this, {}, skip_special);
  std::string text = detokenizer.Append(ids);
  return text + detokenizer.Finish();
}

}  // namespace coppice::tokenizer
