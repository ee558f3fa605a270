// The formats of a node: which requests share one, and which are dropped.
#include "grammar/format_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sampling/rng.h"
#include "tests/testing/toy_text.h"

namespace coppice::grammar {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const tokenizer::Vocabulary> Toys() {
  return std::make_shared<const tokenizer::Vocabulary>(test::ToyTokenizer(15));
}
FormatSpec Regex(const std::string& text) { return {FormatSpec::Kind::kRegex, text}; }

class FormatStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<const OutputFormat> Find(const FormatSpec& spec, std::vector<TokenId> ends) {
    auto format = store_.Find(spec, std::move(ends));
    EXPECT_TRUE(format.ok()) << format.status();
    return format.ok() ? *format : nullptr;
  }
  FormatStore store_{Toys()};
};

TEST(FormatStoreWithoutVocabularyTest, ServesNoFormat) {
  FormatStore store(nullptr);
  EXPECT_EQ(store.vocabulary(), nullptr);
  const absl::Status status = store.Find(Regex("a"), {3}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer"));
}

TEST_F(FormatStoreTest, EqualRequestsShareAFormat) {
  const auto one = Find(Regex("(a|b)+c"), {3});
  EXPECT_EQ(Find(Regex("(a|b)+c"), {3}), one);
  EXPECT_NE(Find(Regex("(a|b)+c"), {4}), one);  // ends differently
  EXPECT_NE(Find(Regex("(b|a)+c"), {3}), one);
  EXPECT_NE(Find({FormatSpec::Kind::kGrammar, "root ::= [ab]+ \"c\""}, {3}), one);
  EXPECT_EQ(Find(Regex("(a|b)+c"), {3}), one);
}

TEST_F(FormatStoreTest, OtherEndsEndIt) {
  const auto three = Find(Regex("(a|b)*"), {3}), four = Find(Regex("(a|b)*"), {4});
  EXPECT_TRUE(three->Allowed(three->Start())->Has(3));
  EXPECT_EQ(three->Next(three->Start(), 3), OutputFormat::kBroken);
  EXPECT_NE(four->Next(four->Start(), 3), OutputFormat::kBroken);  // "ba"
  EXPECT_EQ(four->Next(four->Start(), 4), OutputFormat::kBroken);
}

TEST_F(FormatStoreTest, WrongFormatsAreErrorsAndNotKept) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(store_.Find(Regex("(a"), {3}).status().code(), absl::StatusCode::kInvalidArgument);
}

// 256 are kept: the ones that were asked for last.
TEST_F(FormatStoreTest, OldFormatsAreDropped) {
  const auto text = [](int i) { return "a{" + std::to_string(i) + "}b"; };
  const std::weak_ptr<const OutputFormat> first = Find(Regex(text(1)), {3});
  const std::weak_ptr<const OutputFormat> second = Find(Regex(text(2)), {3});
  const auto in_use = Find(Regex(text(3)), {3});
  for (int i = 4; i <= 256; ++i) Find(Regex(text(i)), {3});
  EXPECT_FALSE(first.expired());
  Find(Regex(text(1)), {3});  // now the newest
  Find(Regex(text(257)), {3});
  Find(Regex(text(258)), {3});
  EXPECT_FALSE(first.expired());
  EXPECT_TRUE(second.expired());
  // A sequence that still has it may go on with it.
  EXPECT_TRUE(in_use->Allowed(in_use->Start())->Has(0));
  EXPECT_NE(Find(Regex(text(3)), {3}), in_use);
}

// A format that has used half of its states is made anew for the next request. Those that have it
// can end with it.
TEST_F(FormatStoreTest, AWornFormatIsReplaced) {
  const FormatSpec large = Regex("(a|b)*a(a|b){20}");
  const auto one = Find(large, {3});
  OutputFormat::State state = one->Start();
  uint64_t steps = 0;
  const auto step = [&] {
    state = one->Next(state, static_cast<TokenId>(sampling::Finalize(steps++) % 2));
  };
  while (steps < 10'000) step();
  EXPECT_EQ(Find(large, {3}), one);
  std::shared_ptr<const OutputFormat> other = one;
  while (other == one && state >= 0) {
    for (int i = 0; i < 100; ++i) step();
    other = Find(large, {3});
  }
  EXPECT_GE(state, 0);
  const uint64_t worn = steps;
  EXPECT_EQ(Find(large, {3}), other);
  while (state >= 0) step();
  EXPECT_GT(steps, worn + worn / 2);
  EXPECT_GE(other->Next(other->Start(), 0), 0);
  EXPECT_EQ(Find(large, {3}), other);
}

}  // namespace
}  // namespace coppice::grammar
