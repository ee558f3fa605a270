#include "tokenizer/stop_strings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

constexpr uint32_t kAllSpaces = (1u << 20) - 1;
constexpr size_t kMostRemembered = 64;  // lists of completing tokens that are kept
constexpr size_t kLongestTail = 3;      // bytes of an incomplete character
constexpr absl::string_view kReplacedText = "\xef\xbf\xbd";

}  // namespace

// A State, unpacked.
struct StopStrings::Text {
  StopAutomaton::Node node = 0;
  uint32_t spaces = 0;             // leading spaces that are still dropped
  char pending[kLongestTail + 1];  // an incomplete character
  uint32_t num_pending = 0;
  bool of_prompt = false;  // the text begins in the prompt
  bool matched = false;

  static Text Of(State state) {
    Text text;
    text.node = state & 0xffff;
    for (size_t i = 0; i < kLongestTail; ++i) text.pending[i] = state >> (16 + 8 * i) & 0xff;
    text.num_pending = state >> 40 & 3;
    text.of_prompt = (state >> 42 & 1) != 0;
    text.spaces = state >> 43 & kAllSpaces;
    text.matched = (state >> 63) != 0;
    return text;
  }
  State Packed() const {
    State state = node;
    for (size_t i = 0; i < num_pending; ++i)
      state |= static_cast<State>(static_cast<unsigned char>(pending[i])) << (16 + 8 * i);
    return state | static_cast<State>(num_pending) << 40 | static_cast<State>(of_prompt) << 42 |
           static_cast<State>(spaces) << 43 | static_cast<State>(matched) << 63;
  }
  // True: the byte is a leading space that the text does not have.
  bool Drops(char byte) {
    if (spaces == 0) return false;
    if (byte != ' ') {
      spaces = 0;
      return false;
    }
    if (spaces != kAllSpaces) --spaces;
    return true;
  }
};

StopStrings::StopStrings(std::shared_ptr<const Vocabulary> vocabulary,
                         absl::Span<const std::string> stops, bool skip_special,
                         absl::Span<const TokenId> prompt)
    : vocabulary_(std::move(vocabulary)), skip_special_(skip_special), automaton_(stops) {
  start_ = AfterPrompt(prompt);
}

StopStrings::State StopStrings::AfterPrompt(absl::Span<const TokenId> prompt) const {
  Text text;
  text.spaces =
      static_cast<uint32_t>(std::min<int64_t>(vocabulary_->leading_spaces_dropped(), kAllSpaces));
  std::string tail;
  for (const TokenId token : prompt) {
    for (const char byte : vocabulary_->Bytes(token, skip_special_)) {
      if (text.Drops(byte)) continue;
      tail.push_back(byte);
      if (tail.size() > kLongestTail) tail.erase(0, 1);
    }
  }
  text.num_pending = static_cast<uint32_t>(IncompleteTail(tail));
  text.of_prompt = text.num_pending > 0;
  tail.copy(text.pending, text.num_pending, tail.size() - text.num_pending);
  return text.Packed();
}

void StopStrings::AddText(absl::string_view settled, Text* text) const {
  for (const char c : settled) {
    text->node = automaton_.Next(text->node, c);
    text->matched = text->matched || automaton_.matched(text->node) > 0;
  }
}

// As Detokenizer does: whole characters, and U+FFFD for a maximal invalid part, unless the prompt's
// own text has it already.
void StopStrings::AddByte(char byte, bool search, Text* text) const {
  text->pending[text->num_pending++] = byte;
  while (text->num_pending > 0) {
    const absl::string_view bytes(text->pending, text->num_pending);
    const Utf8Char c = NextUtf8Char(bytes);
    if (c.incomplete) return;
    const bool in_prompt_text = text->of_prompt && !c.valid;
    if (search && !in_prompt_text)
      AddText(c.valid ? bytes.substr(0, c.length) : kReplacedText, text);
    text->of_prompt = false;
    text->num_pending -= c.length;
    std::memmove(text->pending, text->pending + c.length, text->num_pending);
  }
}

StopStrings::State StopStrings::Next(State state, TokenId token, bool search) const {
  Text text = Text::Of(state);
  if (text.matched) return state;
  for (const char byte : vocabulary_->Bytes(token, skip_special_)) {
    if (text.Drops(byte)) continue;
    AddByte(byte, search, &text);
    if (text.matched) break;
  }
  return text.Packed();
}

bool StopStrings::Matched(State state) const { return Text::Of(state).matched; }

std::vector<TokenId> StopStrings::Completing(State state) const {
  const std::lock_guard<std::mutex> lock(lock_);
  const auto known = completing_.find(state);
  if (known != completing_.end()) return known->second;
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < vocabulary_->size(); ++token) {
    if (Matched(Next(state, token, /*search=*/true))) tokens.push_back(token);
  }
  if (completing_.size() >= kMostRemembered) completing_.clear();
  return completing_.emplace(state, std::move(tokens)).first->second;
}

}  // namespace coppice::tokenizer
