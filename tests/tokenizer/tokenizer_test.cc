#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/tokenizer/fixture.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> LoadFixture(const std::string& name) {
  auto tokenizer = Tokenizer::Load(kFixtures + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

class EveryTokenizer : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    tokenizer_ = LoadFixture(GetParam());
    ASSERT_NE(tokenizer_, nullptr);
    texts_ = ReadFixture("texts.json").get<std::vector<std::string>>();
    const nlohmann::json expected = ReadFixture(GetParam() + "/expected.json");
    before_ = expected["before"].get<Ids>();
    expected_ = expected["texts"];
    ASSERT_EQ(expected_.size(), texts_.size());
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> texts_;
  nlohmann::json expected_;
  Ids before_;
};

TEST_P(EveryTokenizer, EncodesAsTheReference) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    Ids ids = expected_[i]["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->Encode(texts_[i], false), ids) << texts_[i];
    ids.insert(ids.begin(), before_.begin(), before_.end());
    EXPECT_EQ(tokenizer_->Encode(texts_[i], true), ids) << texts_[i];
  }
}

TEST_P(EveryTokenizer, DecodesAsTheReference) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Ids ids = expected_[i]["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->Decode(ids, true), expected_[i]["decoded"].get<std::string>())
        << texts_[i];
  }
}

// Also of texts that have as few tokens as they can: the tokens themselves, and characters that
// become shorter when they are normalized.
TEST_P(EveryTokenizer, NoTextHasFewerTokensThanItsBytesSay) {
  std::vector<std::string> texts = texts_;
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id)
    texts.push_back(tokenizer_->TokenBytes(id, /*skip_special=*/false));
  for (const char* shrinks :
       {"\xE1\xBE\xBE\xCC\x88\xCC\x81", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xE2\x84\xAA",
        "\xE2\x84\xAB\xCC\x81", " ", "a ", "a\xCC\x81", "ab\xCC\x81z", "a\t\n", "\xFF",
        "\xF0\x9F\x98\x80"})
    texts.push_back(shrinks);
  for (const std::string& text : texts) {
    for (const int times : {1, 7, 64}) {
      std::string repeated;
      for (int i = 0; i < times; ++i) repeated += text;
      const std::string valid = ValidUtf8(repeated);
      EXPECT_GE(tokenizer_->Encode(valid, false).size(), tokenizer_->FewestTokens(valid))
          << times << " times " << text;
    }
  }
}

// Of a text of characters that have tokens of their own, every vocabulary knows it.
TEST_P(EveryTokenizer, KnowsHowFewTokensATextHasUnlessOneMayStandForAnyText) {
  for (const char* letter : {"a", "A", "\xC3\xA9"}) {
    std::string run;
    for (int i = 0; i < 1 << 15; ++i) run += letter;
    const size_t fewest = tokenizer_->FewestTokens(run);
    const size_t real = tokenizer_->Encode(run, false).size();
    EXPECT_LE(fewest, real) << letter;
    // Merges do not always end in the longest token, and a character may have a token for each byte.
    EXPECT_EQ(fewest > real / 5, real > 2) << letter << ": " << fewest << " of " << real;
  }
  std::string unknown;
  for (int i = 0; i < 1 << 18; ++i) unknown += "\xF0\x9F\x98\x80";
  const bool may = GetParam() == "unknown_fused" || GetParam() == "sentencepiece_unknown";
  EXPECT_EQ(tokenizer_->FewestTokens(unknown) == 0, may);
}

// Among other text, whatever is beside a run and wherever a token of it is cut.
TEST_P(EveryTokenizer, RunsInsideOfATextHaveNoMoreTokensThanItHas) {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {
      "a", "e",  "\xC3\xA9",         "\xE4\xB8\xAD", " ",           "\xCC\x81",
      "=", "\n", "\xF0\x9F\x98\x80", "the",          "\xE1\x84\x80"};
  size_t found = 0;
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 4; ++i) {
      const std::string& piece = pieces[random() % pieces.size()];
      for (int n = static_cast<int>(random() % 400); n >= 0; --n) text += piece;
      text += texts_[random() % texts_.size()].substr(0, random() % 20);
    }
    text = ValidUtf8(text);
    const size_t fewest = tokenizer_->FewestTokens(text);
    EXPECT_LE(fewest, tokenizer_->Encode(text, false).size()) << text;
    found += fewest;
  }
  EXPECT_GT(found, 1000);
}

TEST_P(EveryTokenizer, EncodesAlikeFromManyThreads) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts_.size(); ++i) {
        wrong[t] += tokenizer_->Encode(texts_[i], false) != expected_[i]["ids"].get<Ids>();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST_P(EveryTokenizer, AnyBytesEncodeToIdsOfTheVocabulary) {
  uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
  for (int n = 0; n < 200; ++n) {
    std::string bytes;
    for (uint32_t length = next() % 40; bytes.size() < length;) {
      bytes.push_back(static_cast<char>(next()));
    }
    const Ids ids = tokenizer_->Encode(bytes, true);
    for (const TokenId id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer_->vocab_size());
    const std::string text = tokenizer_->Decode(ids, false);
    EXPECT_EQ(text, ValidUtf8(text));
    EXPECT_EQ(tokenizer_->Encode(bytes, true), tokenizer_->Encode(ValidUtf8(bytes), true));
  }
}

TEST_P(EveryTokenizer, IdsOutsideTheVocabularyHaveNoBytes) {
  EXPECT_EQ(tokenizer_->TokenBytes(-1, false), "");
  EXPECT_EQ(tokenizer_->TokenBytes(tokenizer_->vocab_size(), false), "");
  EXPECT_FALSE(tokenizer_->IsSpecial(tokenizer_->vocab_size()));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EveryTokenizer, ::testing::ValuesIn(kFixtureNames),
                         [](const auto& info) { return info.param; });

// Tokenizers that lose nothing: they do not normalize, and every byte has a token.
class LosslessTokenizer : public EveryTokenizer {};

TEST_P(LosslessTokenizer, DecodeInvertsEncode) {
  for (const std::string& text : texts_) {
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, false), false), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, LosslessTokenizer, ::testing::Values("byte_level_llama3"),
                         [](const auto& info) { return info.param; });

TEST(Tokenizer, SpecialTokensAreSkippedOnRequest) {
  const auto tokenizer = LoadFixture("byte_level_llama3");
  const Ids ids = tokenizer->Encode("cut<|end|>", true);
  EXPECT_EQ(tokenizer->Decode(ids, false), "<|begin|>cut<|end|>");
  EXPECT_EQ(tokenizer->Decode(ids, true), "cut");
  EXPECT_TRUE(tokenizer->IsSpecial(ids.front()));
  EXPECT_TRUE(tokenizer->IsSpecial(ids.back()));
  EXPECT_EQ(tokenizer->bos_id(), ids.front());
}

TEST(Tokenizer, BosAndEosComeFromTheFolder) {
  const auto tokenizer = LoadFixture("sentencepiece_prefix");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(2));
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  EXPECT_EQ(tokenizer->TokenBytes(2, true), "");
  EXPECT_EQ(tokenizer->TokenBytes(2, false), "</s>");
}

TEST(Tokenizer, BytePiecesAreBytes) {
  const auto tokenizer = LoadFixture("sentencepiece_prefix");
  const Ids ids =
      tokenizer->Encode("\xF0\x9F\xAA\xB5", false);  // a character that is not in the corpus
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer->TokenBytes(id, false);
  EXPECT_EQ(bytes, " \xF0\x9F\xAA\xB5");
}

TEST(Tokenizer, LongTextWithoutACutIsQuick) {
  const auto tokenizer = LoadFixture("byte_fallback_prepend");
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "forest ";
  const Ids ids = tokenizer->Encode(text, false);
  EXPECT_EQ(tokenizer->Decode(ids, false), text);
}

}  // namespace
}  // namespace coppice::tokenizer
