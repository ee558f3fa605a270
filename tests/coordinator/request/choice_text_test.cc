#include "coordinator/request/choice_text.h"

#include <gtest/gtest.h>

#include "tests/coordinator/byte_tokenizer.h"

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

}  // namespace
}  // namespace coppice::coordinator
