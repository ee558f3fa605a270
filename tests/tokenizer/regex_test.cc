#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/tokenizer/fixture.h"

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

// The fixture is made by make_pattern_fixtures.py.
TEST(Regex, APatternFindsWhatTheReferenceFindsOrIsRefused) {
  const nlohmann::json fixture = ReadFixture("patterns.json");
  const auto texts = fixture["texts"].get<std::vector<std::string>>();
  int served = 0, refused = 0;
  for (const nlohmann::json& entry : fixture["patterns"]) {
    const auto pattern = entry["pattern"].get<std::string>();
    const auto regex = Regex::Compile(pattern, /*literal=*/false);
    EXPECT_TRUE(regex.ok() || !entry["served"].get<bool>()) << regex.status();
    EXPECT_FALSE(regex.ok() && entry["matches"].is_null()) << pattern;
    (regex.ok() ? served : refused) += 1;
    if (!regex.ok()) {
      EXPECT_THAT(std::string(regex.status().message()),
                  testing::StartsWith("pattern " + pattern + ": "));
      continue;
    }
    if (entry["matches"].is_null()) continue;
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<size_t> lengths;
      size_t done = 0;
      for (const Regex::Range& range : regex->FindAll(texts[i])) {
        lengths.insert(lengths.end(), {range.begin - done, range.end - range.begin});
        done = range.end;
      }
      EXPECT_EQ(lengths, entry["matches"][i].get<std::vector<size_t>>())
          << pattern << " in " << nlohmann::json(texts[i]);
    }
  }
  EXPECT_GT(served, 90);
  EXPECT_GT(refused, 30);
}

TEST(Regex, RefusalsNameThePlace) {
  for (const auto& [pattern, message] : std::vector<std::pair<std::string, std::string>>{
           {"a(b", "at byte 3: a ( is not closed"},
           {"a)", "at byte 1: a ) without its ("},
           {"a\\X", "at byte 3: \\X is not served"},
           {"(?x)a", "at byte 2: this kind of group is not served"},
           {"\\p{Foo}", "at byte 3: the property Foo is not served"},
           {"[a-c-e]", "at byte 4: a - behind a range or a set is not served"},
           {"(?i:ss)", "at byte 6: ss is not served without regard to case"}}) {
    EXPECT_EQ(Regex::Compile(pattern, /*literal=*/false).status().message(),
              "pattern " + pattern + ": " + message);
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "(";
  EXPECT_FALSE(Regex::Compile(deep, /*literal=*/false).ok());
  for (char& c : deep) c = '[';
  EXPECT_FALSE(Regex::Compile(deep, /*literal=*/false).ok());
}

// Parts of patterns in any order: no crash, and what PCRE2 gets is a pattern.
TEST(Regex, AnyTextIsAPatternOrIsRefused) {
  const std::vector<std::string> parts = {
      "a",  "[",  "]",    "(",    ")",   "|",    "\\",       "^",   "$",   "*", "+",  "?",
      "{2", "}",  ",",    "&&",   "-",   "\\w",  "\\p{",     "L}",  "(?i", ":", "(?", "<",
      "[:", ":]", "\\x{", "(?<=", "\\b", "{,3}", "\xC3\xA9", "\\h", "#",   "!"};
  std::mt19937 random(9);
  int good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pattern;
    for (size_t n = 1 + random() % 8; n > 0; --n) pattern += parts[random() % parts.size()];
    const auto regex = Regex::Compile(pattern, /*literal=*/false);
    if (!regex.ok()) continue;
    ++good;
    regex->FindAll("ab \xC3\xA9]-12\n");
  }
  EXPECT_GT(good, 500);
}

}  // namespace
}  // namespace coppice::tokenizer
