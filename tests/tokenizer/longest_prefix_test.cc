#include "tokenizer/longest_prefix.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace coppice::tokenizer {
namespace {

// Of words of two letters, so that many begin alike, against a search that tries all of them.
TEST(LongestPrefixTest, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(1);
  const auto word = [&random](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = random() % 2 == 0 ? 'a' : '\xFF';
    return text;
  };
  size_t found = 0;
  for (int round = 0; round < 500; ++round) {
    std::set<std::string> made;
    for (size_t n = random() % 8; n > 0; --n) made.insert(word(5));
    const std::vector<std::string> texts(made.begin(), made.end());
    LongestPrefix prefixes;
    for (size_t i = 0; i < texts.size(); ++i) prefixes.Add(texts[i], static_cast<TokenId>(i));
    for (int i = 0; i < 20; ++i) {
      const std::string text = word(8);
      const size_t room = random() % 7;
      LongestPrefix::Found wanted;
      for (size_t k = 0; k < texts.size(); ++k) {
        const size_t size = texts[k].size();
        if (size > wanted.length && size <= room && text.compare(0, size, texts[k]) == 0)
          wanted = {size, static_cast<TokenId>(k)};
      }
      const LongestPrefix::Found got = prefixes.At(text, room);
      EXPECT_EQ(got.length, wanted.length) << text;
      EXPECT_EQ(got.id, wanted.id) << text;
      found += got.length > 0;
    }
  }
  EXPECT_GT(found, 1000u);
}

}  // namespace
}  // namespace coppice::tokenizer
