#include "coordinator/request/choice_text.h"

#include <gtest/gtest.h>

#include <random>

#include "coordinator/message/tool_format.h"
#include "tests/coordinator/byte_tokenizer.h"
#include "tests/coordinator/request/naive_text.h"
#include "tests/coordinator/request/piece_tokenizer.h"

namespace coppice::coordinator {
namespace {

TEST(ChoiceText, EveryPieceIsWholeCharactersAndThePiecesAreTheText) {
  const ByteTokenizer tokenizer;
  ChoiceText text(&tokenizer, Bytes("p"), GenerateRequest());
  std::string all;
  for (const TokenId token : Bytes("a\xe2\x82\xac z")) {
    const std::string piece = text.Append({&token, 1});
    EXPECT_TRUE(piece.empty() || piece == "\xe2\x82\xac" || piece.size() == 1);
    all += piece;
  }
  EXPECT_EQ(all + text.Finish(), "a\xe2\x82\xac z");
  EXPECT_EQ(text.text(), "a\xe2\x82\xac z");
}

TEST(ChoiceText, AnUnfinishedCharacterBecomesTheReplacementAtTheEnd) {
  const ByteTokenizer tokenizer;
  ChoiceText text(&tokenizer, Bytes("p"), GenerateRequest());
  EXPECT_EQ(text.Append(Bytes("a\xe2\x82")), "a");
  EXPECT_EQ(text.Finish(), "\xef\xbf\xbd");
}

TEST(ChoiceText, AStopEndsTheTokensToo) {
  const ByteTokenizer tokenizer;
  GenerateRequest request;
  request.params.stop_strings = {"cd"};
  ChoiceText text(&tokenizer, Bytes("p"), request);
  text.Append(Bytes("abcdef"));
  text.Finish();
  EXPECT_EQ(text.text(), "ab");
  EXPECT_EQ(text.tokens(), Bytes("abcd"));
  EXPECT_EQ(text.stop(), "cd");
}

TEST(ChoiceText, BeforeMinTokensStopsAreNotLookedFor) {
  const ByteTokenizer tokenizer;
  GenerateRequest request;
  request.params.stop_strings = {"ab"};
  request.params.min_tokens = 3;
  ChoiceText text(&tokenizer, Bytes("p"), request);
  text.Append(Bytes("ababab"));
  EXPECT_EQ(text.text(), "ab");
  EXPECT_EQ(text.tokens().size(), 4);
}

TEST(ChoiceText, SpecialTokensAreSkippedOrShown) {
  const ByteTokenizer tokenizer;
  GenerateRequest request;
  ChoiceText skipped(&tokenizer, Bytes("p"), request);
  skipped.Append(Bytes("a", true));
  EXPECT_EQ(skipped.text(), "a");
  EXPECT_EQ(skipped.tokens().size(), 2);
  request.skip_special_tokens = false;
  ChoiceText shown(&tokenizer, Bytes("p"), request);
  shown.Append(Bytes("a", true));
  EXPECT_EQ(shown.text(), "a</s>");
}

// Characters of the bytes that end before the place.
size_t CharactersBefore(const std::string& bytes, size_t place) {
  size_t count = 0;
  for (size_t at = 0; at < bytes.size(); ++count) {
    bool whole = false;
    at += NaiveCharacter(bytes, at, &whole);
    if (at > place) break;
  }
  return count;
}

TEST(ChoiceText, OffsetsCountTheCharactersThatEndBeforeEachToken) {
  // Piece 0 is special and has no text.
  const PieceTokenizer tokenizer({"<s>", "a", "\xe2", "\x82", "\xac", "\xf0", "\x9f", "b\xe2",
                                  "\x82x", "\xac\xf0", "\xc3\xa9", "\xa0", "\v"},
                                 /*num_special=*/1, /*spaces=*/0);
  const GenerateRequest request;
  const auto offsets = [&](std::vector<TokenId> tokens) {
    ChoiceText text(&tokenizer, {}, request);
    text.Append(tokens);
    text.Finish();
    return text.offsets();
  };
  using Offsets = std::vector<size_t>;
  EXPECT_EQ(offsets({0, 2, 12, 5, 12}), (Offsets{0, 0, 1, 2, 3}));  // ended by something else
  EXPECT_EQ(offsets({2, 3, 4, 1}), (Offsets{0, 0, 0, 1}));          // continued
  EXPECT_EQ(offsets({2, 3, 1}), (Offsets{0, 0, 1}));                // continued, then ended
  EXPECT_EQ(offsets({2, 8, 1}), (Offsets{0, 0, 2}));                // ended inside of a token
  EXPECT_EQ(offsets({1, 2, 0}), (Offsets{0, 1, 2}));                // at the end
  EXPECT_EQ(offsets({2, 0, 3, 4, 1}), (Offsets{0, 0, 0, 0, 1}));    // continued behind no text
  EXPECT_EQ(offsets({2, 0, 0, 1}), (Offsets{0, 1, 1, 1}));          // ended behind no text
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<TokenId> tokens;
    std::string bytes;
    Offsets begins;
    for (size_t length = random() % 9; tokens.size() < length;) {
      tokens.push_back(static_cast<TokenId>(random() % tokenizer.vocab_size()));
      begins.push_back(bytes.size());
      bytes += tokenizer.TokenBytes(tokens.back(), /*skip_special=*/true);
    }
    ChoiceText text(&tokenizer, {}, request);
    Offsets settled;  // as they were when they were settled
    for (const TokenId token : tokens) {
      text.Append({&token, 1});
      for (size_t i = settled.size(); i < text.settled_tokens(); ++i)
        settled.push_back(text.offsets()[i]);
    }
    text.Finish();
    ASSERT_EQ(text.settled_tokens(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(text.offsets()[i], CharactersBefore(bytes, begins[i])) << i << " in " << round;
      EXPECT_EQ(i < settled.size() ? settled[i] : text.offsets()[i], text.offsets()[i]) << round;
    }
  }
}

// The text of the prompt ends with the U+FFFD of its unfinished character.
TEST(ChoiceText, AnUnfinishedCharacterOfThePromptDoesNotCount) {
  const ByteTokenizer tokenizer;
  for (const auto& [completion, offsets] : std::vector<std::pair<std::string, std::vector<size_t>>>{
           {"xy", {0, 1}}, {"\x82xy", {0, 0, 1}}, {"\x82\xacx", {0, 0, 1}}}) {
    ChoiceText text(&tokenizer, Bytes("p\xe2"), GenerateRequest());
    text.Append(Bytes(completion));
    text.Finish();
    EXPECT_EQ(text.offsets(), offsets);
  }
}

// A tokenizer of bytes with special tokens that begin and end a call.
class CallTokenizer : public ByteTokenizer {
 public:
  static constexpr TokenId kOpen = 258, kClose = 259;
  int vocab_size() const override { return 260; }
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    if (id < kOpen) return ByteTokenizer::TokenBytes(id, skip_special);
    return skip_special ? "" : id == kOpen ? "<tool_call>" : "</tool_call>";
  }
};

TEST(ChoiceText, SpecialTokensDivideTheText) {
  const CallTokenizer tokenizer;
  auto syntax = std::make_shared<MessageSyntax>();
  syntax->tool_format = FindToolFormat("hermes");
  syntax->tools = {{"f", ""}};
  GenerateRequest request;
  request.syntax = syntax;
  std::vector<TokenId> tokens = Bytes("a st");  // "st" may begin the stop string
  tokens.push_back(CallTokenizer::kOpen);
  for (const TokenId id : Bytes("\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"))
    tokens.push_back(id);
  tokens.push_back(CallTokenizer::kClose);
  for (const bool skips : {true, false}) {
    for (const char* stop : {"", "stop"}) {
      request.skip_special_tokens = skips;
      request.params.stop_strings = {};
      if (*stop != 0) request.params.stop_strings = {stop};
      ChoiceText text(&tokenizer, {}, request);
      for (const TokenId token : tokens) text.Append({&token, 1});
      text.Finish();
      ASSERT_NE(text.parts(), nullptr);
      EXPECT_EQ(text.parts()->content, "a st");
      ASSERT_EQ(text.parts()->calls.size(), 1u);
      EXPECT_EQ(text.parts()->calls[0].arguments, "{\"x\": 1}");
    }
  }
  EXPECT_EQ(ChoiceText(&tokenizer, {}, GenerateRequest()).parts(), nullptr);
}

}  // namespace
}  // namespace coppice::coordinator
