#include "tokenizer/nfc.h"

#include <gtest/gtest.h>

namespace coppice::tokenizer {
namespace {

std::string Utf8(const char8_t* text) { return reinterpret_cast<const char*>(text); }

TEST(Nfc, ComposesAndReorders) {
  EXPECT_EQ(ToNfc("plain text"), "plain text");
  EXPECT_EQ(ToNfc(Utf8(u8"e\u0301")), Utf8(u8"\u00e9"));
  // UAX 15, figure 5 and table 1: marks of the same class block composition, other marks do not.
  EXPECT_EQ(ToNfc(Utf8(u8"q\u0307\u0323")), Utf8(u8"q\u0323\u0307"));
  EXPECT_EQ(ToNfc(Utf8(u8"d\u0307\u0323")), Utf8(u8"\u1E0D\u0307"));
  EXPECT_EQ(ToNfc(Utf8(u8"a\u0305\u0301")), Utf8(u8"a\u0305\u0301"));
}

TEST(Nfc, SingletonsAndExclusionsStayDecomposed) {
  EXPECT_EQ(ToNfc(Utf8(u8"\u212B")), Utf8(u8"\u00C5"));        // angstrom sign
  EXPECT_EQ(ToNfc(Utf8(u8"\u0958")), Utf8(u8"\u0915\u093C"));  // composition exclusion
}

TEST(Nfc, HangulIsArithmetic) {
  EXPECT_EQ(ToNfc(Utf8(u8"\u1112\u1161\u11AB")), Utf8(u8"\uD55C"));
  EXPECT_EQ(ToNfc(Utf8(u8"\uD558\u11AB")), Utf8(u8"\uD55C"));
  EXPECT_EQ(ToNfc(Utf8(u8"\uD55C")), Utf8(u8"\uD55C"));
  // The first trailing consonant is U+11A8. The character before it does not compose.
  EXPECT_EQ(ToNfc(Utf8(u8"\uD558\u11A7")), Utf8(u8"\uD558\u11A7"));
  EXPECT_EQ(ToNfc(Utf8(u8"\u11A7\uD558\u11A7\u0301e\u0301")),
            Utf8(u8"\u11A7\uD558\u11A7\u0301\u00e9"));
}

// U+0EBA has a combining class since Unicode 12, U+11938 a decomposition since 13.
TEST(Nfc, CharactersThatUnicode9HasNotStay) {
  EXPECT_EQ(ToNfc(Utf8(u8"\u0EB9\u0EBA")), Utf8(u8"\u0EB9\u0EBA"));
  EXPECT_EQ(ToNfc(Utf8(u8"a\u0EBA\u0301\u0323e\u0301")), Utf8(u8"a\u0EBA\u0323\u0301\u00e9"));
  EXPECT_EQ(ToNfc(Utf8(u8"\u0EBAe\u0301")), Utf8(u8"\u0EBA\u00e9"));
  EXPECT_EQ(ToNfc(Utf8(u8"\U00011935\U00011930")), Utf8(u8"\U00011935\U00011930"));
  EXPECT_EQ(ToNfc(Utf8(u8"\U00011938")), Utf8(u8"\U00011938"));
}

TEST(Nfc, InvalidPartsAreReplaced) {
  EXPECT_EQ(ToNfc("e\xCC\x81\xFF\xCC\x81"), Utf8(u8"\u00e9\uFFFD\u0301"));
  EXPECT_EQ(ToNfc(std::string("\xC3\xA9\0e\xCC", 5)), std::string("\xC3\xA9\0e\xEF\xBF\xBD", 7));
}

}  // namespace
}  // namespace coppice::tokenizer
