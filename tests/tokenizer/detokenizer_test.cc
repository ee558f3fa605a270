#include <gtest/gtest.h>

#include <map>

#include "tests/tokenizer/fixture.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

constexpr TokenId kSpecial = 256;

// Token b is the byte b; token 256 is special.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(int leading_spaces_dropped) : dropped_(leading_spaces_dropped) {}
  int vocab_size() const override { return 257; }
  TokenId bos_id() const override { return kSpecial; }
  std::vector<TokenId> eos_ids() const override { return {}; }
  bool IsSpecial(TokenId id) const override { return id == kSpecial; }
  Ids Encode(absl::string_view text, bool) const override {
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  Ids EncodeChat(absl::string_view text, absl::Span<const size_t>, bool) const override {
    return Encode(text, false);
  }
  std::vector<size_t> FindSpecial(absl::string_view) const override { return {}; }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id == kSpecial) return skip_special ? "" : "<s>";
    return std::string(1, static_cast<char>(id));
  }
  int LeadingSpacesDropped() const override { return dropped_; }

 private:
  int dropped_;
};

std::string InPieces(const Tokenizer& tokenizer, const Ids& prompt, const Ids& ids, size_t step) {
  Detokenizer detokenizer(&tokenizer, prompt, /*skip_special=*/true);
  std::string text;
  for (size_t i = 0; i < ids.size(); i += step) {
    const size_t n = std::min(step, ids.size() - i);
    const std::string piece = detokenizer.Append(absl::MakeConstSpan(ids).subspan(i, n));
    EXPECT_EQ(piece, ValidUtf8(piece));
    text += piece;
  }
  return text + detokenizer.Finish();
}

TEST(Detokenizer, SplitAtEveryPointGivesTheSameText) {
  for (const std::string& name : kFixtureNames) {
    const auto tokenizer = Tokenizer::Load(kFixtures + name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string& text : ReadFixture("texts.json").get<std::vector<std::string>>()) {
      const Ids ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/false);
      const std::string whole = (*tokenizer)->Decode(ids, /*skip_special=*/true);
      for (size_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(InPieces(**tokenizer, {}, ids, step), whole) << name;
      }
    }
  }
}

TEST(Detokenizer, CompletionIsTheWholeTextWithoutThePrompts) {
  for (const std::string& name : kFixtureNames) {
    const auto tokenizer = Tokenizer::Load(kFixtures + name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string& text : ReadFixture("texts.json").get<std::vector<std::string>>()) {
      const Ids ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/true);
      const std::string whole = (*tokenizer)->Decode(ids, true);
      for (size_t cut = 0; cut <= ids.size(); ++cut) {
        const Ids prompt(ids.begin(), ids.begin() + cut), rest(ids.begin() + cut, ids.end());
        const std::string before = (*tokenizer)->Decode(prompt, true);
        if (whole.compare(0, before.size(), before) != 0) continue;  // cut inside a character
        EXPECT_EQ(before + InPieces(**tokenizer, prompt, rest, 1), whole) << name << " at " << cut;
      }
    }
  }
}

TEST(Detokenizer, RandomBytesGiveTheSameTextHoweverSplit) {
  const ByteTokenizer tokenizer(1);
  uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
  for (int n = 0; n < 2000; ++n) {
    Ids ids;
    // Mostly bytes that start or continue characters, so many texts are nearly valid.
    for (uint32_t i = 0, length = next() % 12; i < length; ++i) {
      ids.push_back(next() % 3 == 0 ? next() % 257 : 0x80 + next() % 0x80);
    }
    const std::string whole = tokenizer.Decode(ids, true);
    EXPECT_EQ(InPieces(tokenizer, {}, ids, 1), whole);
    EXPECT_EQ(InPieces(tokenizer, {}, ids, 2), whole);
  }
}

TEST(Detokenizer, HoldsBackHalfACharacter) {
  const ByteTokenizer tokenizer(0);
  Detokenizer detokenizer(&tokenizer, {}, true);
  EXPECT_EQ(detokenizer.Append(Ids{'a', 0xE2, 0x96}), "a");
  EXPECT_EQ(detokenizer.Append(Ids{0x81}), "\xE2\x96\x81");
  EXPECT_EQ(detokenizer.Append(Ids{0xE2, 0x96}), "");
  EXPECT_EQ(detokenizer.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(Detokenizer, DropsTheFirstSpaceOfATextOnly) {
  const ByteTokenizer tokenizer(1);
  EXPECT_EQ(InPieces(tokenizer, {}, {' ', ' ', 'a'}, 1), " a");
  EXPECT_EQ(InPieces(tokenizer, {kSpecial}, {' ', 'a'}, 1), "a");
  EXPECT_EQ(InPieces(tokenizer, {'x'}, {' ', 'a'}, 1), " a");
  EXPECT_EQ(InPieces(tokenizer, {' '}, {' ', 'a'}, 1), " a");
  EXPECT_EQ(InPieces(tokenizer, {}, {'a', ' '}, 1), "a ");
}

TEST(Detokenizer, CharacterBegunByThePromptIsGivenOnce) {
  const ByteTokenizer tokenizer(0);
  EXPECT_EQ(InPieces(tokenizer, {'a', 0xC3}, {0xA9, 'b'}, 1),
            "\xC3\xA9"
            "b");
  EXPECT_EQ(InPieces(tokenizer, {'a', 0xC3}, {'b'}, 1), "b");  // U+FFFD belongs to the prompt
  EXPECT_EQ(InPieces(tokenizer, {'a', 0xC3}, {}, 1), "");
}

}  // namespace
}  // namespace coppice::tokenizer
