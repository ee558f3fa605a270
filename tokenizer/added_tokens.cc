#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::json;

size_t LeadingWhiteSpace(absl::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Char c = NextUtf8Char(text.substr(n));
    if (!IsWhiteSpace(c.code_point)) break;
    n += c.length;
  }
  return n;
}

size_t TrailingWhiteSpace(absl::string_view text) {
  size_t kept = 0;  // bytes up to the last character that is not white space
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = NextUtf8Char(text.substr(at));
    at += c.length;
    if (!IsWhiteSpace(c.code_point)) kept = at;
  }
  return text.size() - kept;
}

}  // namespace

bool IsWhiteSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const Json& json, const Normalizer& normalizer) {
  AddedTokens added;
  if (json.is_null()) return added;
  for (const Json& entry : json) {
    AddedToken token;
    token.id = entry.at("id").get<TokenId>();
    token.content = entry.at("content").get<std::string>();
    token.special = token.control = entry.value("special", false);
    token.normalized = entry.value("normalized", !token.special);
    token.strip_left = entry.value("lstrip", false);
    token.strip_right = entry.value("rstrip", false);
    if (token.content.empty() || token.id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: expected a content and an id >= 0, got id ", token.id));
    }
    if (entry.value("single_word", false)) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: ", token.content, ": single_word is not supported"));
    }
    const int index = static_cast<int>(added.tokens_.size());
    token.text = token.normalized ? normalizer.Apply(token.content) : token.content;
    AddNeedle(token.text, index, token.normalized ? &added.normalized_ : &added.raw_);
    added.tokens_.push_back(std::move(token));
  }
  return added;
}

void AddedTokens::AddNeedle(const std::string& text, int token, Matcher* matcher) {
  if (text.empty()) return;  // nothing is left after normalization, so it is never found
  std::vector<Needle>& needles = matcher->by_first_byte[static_cast<uint8_t>(text[0])];
  const auto before = [](const Needle& a, const Needle& b) { return a.text < b.text; };
  Needle needle{text, token};
  needles.insert(std::upper_bound(needles.begin(), needles.end(), needle, before), needle);
}

const AddedTokens::Needle* AddedTokens::FindAt(const Matcher& matcher, absl::string_view text,
                                               size_t room) const {
  const std::vector<Needle>& needles = matcher.by_first_byte[static_cast<uint8_t>(text[0])];
  const Needle* found = nullptr;
  auto begin = needles.begin(), end = needles.end();
  // The needles from begin to end are those whose first `same` bytes are the text's.
  for (size_t same = 1; begin != end; ++same) {
    for (; begin != end && begin->text.size() == same; ++begin) {
      const bool longer = found == nullptr || found->text.size() < same;
      if (longer && (same <= room || !tokens_[begin->token].control)) found = &*begin;
    }
    if (same == text.size()) break;
    const auto byte = [same](absl::string_view s) { return static_cast<uint8_t>(s[same]); };
    const uint8_t next = byte(text);
    begin = std::partition_point(begin, end, [&](const Needle& n) { return byte(n.text) < next; });
    end = std::partition_point(begin, end, [&](const Needle& n) { return byte(n.text) == next; });
  }
  return found;
}

bool AddedTokens::strips() const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [](const AddedToken& token) { return token.strip_left || token.strip_right; });
}

void AddedTokens::SetControl(absl::string_view content) {
  for (AddedToken& token : tokens_) token.control = token.control || token.content == content;
}

bool AddedTokens::normalizes_control() const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [](const AddedToken& token) { return token.control && token.normalized; });
}

std::vector<AddedTokens::Part> AddedTokens::Split(const Matcher& matcher, absl::string_view text,
                                                  absl::Span<const size_t> literal) const {
  std::vector<Part> parts;
  size_t done = 0;
  auto next = literal.begin();  // the first literal byte that is not before `at`
  for (size_t at = 0; at < text.size();) {
    while (next != literal.end() && *next < at) ++next;
    const Needle* found = nullptr;
    if (!matcher.by_first_byte[static_cast<uint8_t>(text[at])].empty())
      found = FindAt(matcher, text.substr(at), next == literal.end() ? text.size() : *next - at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found->token];
    size_t begin = at;
    at += found->text.size();
    if (token.strip_left) begin -= TrailingWhiteSpace(text.substr(done, begin - done));
    if (token.strip_right) at += LeadingWhiteSpace(text.substr(at));
    if (done < begin) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, at - begin), token.id});
    done = at;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace coppice::tokenizer
