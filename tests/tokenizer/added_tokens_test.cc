#include "tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace coppice::tokenizer {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

using Found = std::vector<std::pair<std::string, TokenId>>;

// The parts of the text, with token i for contents[i].
Found Split(const std::vector<std::string>& contents, const std::string& text) {
  json list = json::array();
  for (size_t i = 0; i < contents.size(); ++i) {
    list.push_back({{"id", i}, {"content", contents[i]}, {"special", true}});
  }
  const auto added = AddedTokens::FromJson(list, Normalizer());
  EXPECT_TRUE(added.ok()) << added.status();
  Found found;
  for (const AddedTokens::Part& part : added->SplitRaw(text)) {
    found.emplace_back(std::string(part.text), part.id);
  }
  return found;
}

TEST(AddedTokensTest, OfTokensThatBeginAlikeTheLongestIsFound) {
  std::vector<std::string> contents = {"<a>", "<a>b", "<a>bc", "<d>"};
  std::sort(contents.begin(), contents.end());
  do {  // however they are listed
    const auto id = [&](const std::string& content) {
      return static_cast<TokenId>(std::find(contents.begin(), contents.end(), content) -
                                  contents.begin());
    };
    EXPECT_THAT(Split(contents, "x<a>bcd<a>b<d><a>c"),
                ElementsAre(std::pair("x", -1), std::pair("<a>bc", id("<a>bc")), std::pair("d", -1),
                            std::pair("<a>b", id("<a>b")), std::pair("<d>", id("<d>")),
                            std::pair("<a>", id("<a>")), std::pair("c", -1)));
  } while (std::next_permutation(contents.begin(), contents.end()));
}

// A longer one that begins later does not take the place of a shorter one.
TEST(AddedTokensTest, TheLeftmostIsFound) {
  EXPECT_THAT(Split({"ab", "bcdef"}, "abcdef"),
              ElementsAre(std::pair("ab", 0), std::pair("cdef", -1)));
  EXPECT_THAT(Split({"ab", "bcdef"}, "aabcdef"),
              ElementsAre(std::pair("a", -1), std::pair("ab", 0), std::pair("cdef", -1)));
  EXPECT_THAT(Split({"abc", "bc"}, "abbc"), ElementsAre(std::pair("ab", -1), std::pair("bc", 1)));
}

// Tokens and texts of two letters, so that many begin alike, against a search that tries every token at every place.
TEST(AddedTokensTest, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(1);
  const auto word = [&random](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = random() % 2 == 0 ? 'a' : '\xFF';
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> contents(1 + random() % 12);
    for (std::string& content : contents) content = word(6);
    std::sort(contents.begin(), contents.end());
    contents.erase(std::unique(contents.begin(), contents.end()), contents.end());
    std::shuffle(contents.begin(), contents.end(), random);
    const std::string text = word(30);
    Found expected;
    size_t done = 0, at = 0;
    while (at < text.size()) {
      int longest = -1;
      for (size_t t = 0; t < contents.size(); ++t) {
        if (text.compare(at, contents[t].size(), contents[t]) == 0 &&
            (longest < 0 || contents[t].size() > contents[longest].size()))
          longest = static_cast<int>(t);
      }
      if (longest < 0) {
        ++at;
        continue;
      }
      if (done < at) expected.emplace_back(text.substr(done, at - done), -1);
      expected.emplace_back(contents[longest], longest);
      done = at += contents[longest].size();
    }
    if (done < at) expected.emplace_back(text.substr(done), -1);
    ASSERT_EQ(Split(contents, text), expected) << text;
  }
}

}  // namespace
}  // namespace coppice::tokenizer
