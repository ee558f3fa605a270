#include "loadgen/text_fitter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::loadgen {
namespace {

constexpr int kMaxTries = 48;
// Short common words: one token each in most vocabularies.
constexpr std::array kWords = {"time",  "year",  "people", "way",   "day",    "man",   "thing",
                               "world", "life",  "hand",   "part",  "name",   "place", "case",
                               "week",  "work",  "fact",   "group", "number", "night", "point",
                               "home",  "water", "room",   "area",  "money",  "story", "month",
                               "right", "study", "book",   "eye"};

// Drawn once, so that a longer text of a seed begins with the shorter one.
class WordText {
 public:
  explicit WordText(uint64_t seed) : engine_(seed) {}

  std::string First(size_t count) {
    while (words_.size() < count) words_.push_back(kWords[engine_() % kWords.size()]);
    std::string text;
    for (size_t i = 0; i < count; ++i) absl::StrAppend(&text, i > 0 ? " " : "", words_[i]);
    return text;
  }

 private:
  std::mt19937_64 engine_;
  std::vector<const char*> words_;
};

}  // namespace

absl::StatusOr<std::string> FitText(int tokens, uint64_t seed, const CountTokens& count) {
  WordText words(seed);
  // below: most words known to give too few tokens; above: fewest that give too many.
  int64_t below = 0, above = -1, wanted = tokens;
  std::string best;  // the longest text that fits
  int best_count = -1;
  int tries = 0;
  for (; tries < kMaxTries && (above < 0 || above - below > 1); ++tries) {
    const std::string text = words.First(wanted);
    COPPICE_ASSIGN_OR_RETURN(const int have, count(text));
    if (have == tokens) return text;
    if (have < tokens) {
      below = wanted;
      best = text;
      best_count = have;
    } else {
      above = wanted;
    }
    // In proportion, kept strictly between the bounds.
    const double ratio = static_cast<double>(tokens) / std::max(1, have);
    wanted = std::max(below + 1, static_cast<int64_t>(std::llround(wanted * ratio)));
    if (above >= 0) wanted = std::min(wanted, above - 1);
    if (above >= 0 && wanted <= below) break;
  }
  // A word is more than one token. Single characters fill the rest.
  for (; tries < kMaxTries && best_count < tokens; ++tries) {
    const std::string text = best + (best.empty() ? "" : " ") + "a";
    COPPICE_ASSIGN_OR_RETURN(int have, count(text));
    if (have > tokens) {  // the space and the letter are two tokens
      const std::string tighter = best + "!";
      COPPICE_ASSIGN_OR_RETURN(have, count(tighter));
      if (have != tokens) break;
      return tighter;
    }
    best = text;
    best_count = have;
  }
  if (best_count == tokens) return best;
  return absl::NotFoundError(
      absl::StrCat("/tokenize: no text of exactly ", tokens, " tokens was found"));
}

}  // namespace coppice::loadgen
