#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coppice::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Matches(const std::string& pattern, bool literal,
                                 const std::string& text) {
  const auto regex = Regex::Compile(pattern, literal);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> found;
  for (const Regex::Range& range : regex->FindAll(text))
    found.push_back(text.substr(range.begin, range.end - range.begin));
  return found;
}

// As of Unicode 6.3. Mongolian texts have it before a vowel.
TEST(Regex, TheMongolianVowelSeparatorIsNoWhiteSpace) {
  const std::string mark = "\u180e";
  const std::string words = R"( ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  EXPECT_THAT(Matches(words, false, "a " + mark + "a \u2003 b"),
              ElementsAre("a", " " + mark, "a", " \u2003", " b"));
  EXPECT_THAT(Matches(R"(\S+)", false, "a" + mark + "b c"), ElementsAre("a" + mark + "b", "c"));
  EXPECT_THAT(Matches(mark, true, "a" + mark + "\u200b"), ElementsAre(mark));
}

}  // namespace
}  // namespace coppice::tokenizer
