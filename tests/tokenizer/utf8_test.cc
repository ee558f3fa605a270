#include "tokenizer/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice::tokenizer {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

TEST(Utf8, ReadsEveryScalarValueItWrites) {
  for (uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    AppendUtf8(code_point, &text);
    const Utf8Char c = NextUtf8Char(text);
    ASSERT_TRUE(c.valid) << code_point;
    ASSERT_EQ(c.code_point, code_point);
    ASSERT_EQ(static_cast<size_t>(c.length), text.size());
    ASSERT_EQ(IncompleteTail(text), 0u);
    for (size_t n = 1; n < text.size(); ++n) ASSERT_EQ(IncompleteTail(text.substr(0, n)), n);
  }
}

// The examples of the Unicode standard 15.0, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, ReplacesEachMaximalSubpart) {
  const auto replaced = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += kFffd;
    return text;
  };
  EXPECT_EQ(ValidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                      "A"),
            replaced(8) + "A");
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                      "A"),
            replaced(8) + "A");
  EXPECT_EQ(ValidUtf8("\xF4\x91\x92\x93\xFF"
                      "A\x80\xBF"
                      "B"),
            replaced(5) + "A" + replaced(2) + "B");
  EXPECT_EQ(ValidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                      "A"),
            replaced(4) + "A");
}

TEST(Utf8, IncompleteTailIsOnlyWhatMoreBytesCouldComplete) {
  EXPECT_EQ(IncompleteTail(""), 0u);
  EXPECT_EQ(IncompleteTail("a\xE2\x96"), 2u);
  EXPECT_EQ(IncompleteTail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(IncompleteTail("a\xE0\x80"), 0u);  // overlong: no continuation makes it valid
  EXPECT_EQ(IncompleteTail("a\x80\x80"), 0u);
  EXPECT_EQ(IncompleteTail("\xC3\xA9\x80"), 0u);
}

}  // namespace
}  // namespace coppice::tokenizer
