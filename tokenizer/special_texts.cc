#include "tokenizer/special_texts.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace coppice::tokenizer {
namespace {

void SortUnique(std::vector<std::string>* texts) {
  std::sort(texts->begin(), texts->end());
  texts->erase(std::unique(texts->begin(), texts->end()), texts->end());
}

// Whether one of the sorted texts begins with `start`.
bool AnyBeginsWith(const std::vector<std::string>& texts, absl::string_view start) {
  const auto it = std::lower_bound(texts.begin(), texts.end(), start);
  return it != texts.end() && absl::StartsWith(*it, start);
}

}  // namespace

absl::StatusOr<SpecialTexts> SpecialTexts::Make(const std::vector<std::string>& texts) {
  SpecialTexts special;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    if (text.size() > kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat("special token ", text.substr(0, 40),
                                                     "...: ", text.size(),
                                                     " bytes, expected at most ", kMostBytes));
    }
    special.texts_.push_back(absl::AsciiStrToLower(text));
  }
  SortUnique(&special.texts_);
  for (const std::string& text : special.texts_) {
    if (special.shortest_.empty() || !absl::StartsWith(text, special.shortest_.back()))
      special.shortest_.push_back(text);
    for (size_t i = 1; i < text.size(); ++i) special.rests_.push_back(text.substr(i));
    special.longest_ = std::max(special.longest_, text.size());
    special.first_.set(static_cast<uint8_t>(text.front()));
    special.last_.set(static_cast<uint8_t>(text.back()));
  }
  SortUnique(&special.rests_);
  return special;
}

bool SpecialTexts::WrittenAtStart(absl::string_view text) const {
  // No text of shortest_ begins with another, so only the one before can be at the start.
  const auto after = std::upper_bound(shortest_.begin(), shortest_.end(), text);
  return after != shortest_.begin() && absl::StartsWith(text, *(after - 1));
}

bool SpecialTexts::BeginsInside(absl::string_view text) const {
  if (text.size() < longest_ && AnyBeginsWith(rests_, text)) return true;
  for (size_t n = 1; n < longest_ && n <= text.size(); ++n) {
    if (last_[static_cast<uint8_t>(text[n - 1])] &&
        std::binary_search(rests_.begin(), rests_.end(), text.substr(0, n)))
      return true;
  }
  return false;
}

std::vector<size_t> SpecialTexts::Find(absl::string_view text) const {
  std::vector<size_t> found;
  if (text.empty() || texts_.empty()) return found;
  const std::string small = absl::AsciiStrToLower(text);
  const absl::string_view view = small;
  for (size_t at = 0; at < view.size(); ++at) {
    const absl::string_view rest = view.substr(at);
    const bool begins =
        first_[static_cast<uint8_t>(view[at])] &&
        (WrittenAtStart(rest) || (rest.size() < longest_ && AnyBeginsWith(texts_, rest)));
    if (begins || (at == 0 && BeginsInside(view))) found.push_back(at);
  }
  return found;
}

}  // namespace coppice::tokenizer
