// Small tokenizers that are configured as those of published families, against the reference
// libraries (tests/tokenizer/make_family_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "tests/tokenizer/fixture.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {
namespace {

using Ids = std::vector<TokenId>;
using ::testing::ElementsAre;

const std::vector<std::string> kFamilies = {"qwen3",   "gemma3",     "gemma2",   "phi3",
                                            "smollm3", "phi4_mini",  "gpt_neox", "opt",
                                            "phi2",    "qwen2_files"};

uint32_t Fnv(const std::string& text) {
  uint32_t hash = 2166136261;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619;
  return hash;
}

class Family : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load(kFixtures + "families/" + GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    texts_ = ReadFixture("families/texts.json").get<std::vector<std::string>>();
    expected_ = ReadFixture("families/" + GetParam() + "/expected.json");
    ASSERT_EQ(texts_.size(), 500);
    ASSERT_EQ(expected_["ids"].size(), texts_.size());
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> texts_;
  nlohmann::json expected_;
};

TEST_P(Family, EncodesAndDecodesAsTheReference) {
  const Ids before = expected_["before"].get<Ids>();
  for (size_t i = 0; i < texts_.size(); ++i) {
    const Ids ids = tokenizer_->Encode(texts_[i], false);
    EXPECT_EQ(Fnv(absl::StrJoin(ids, " ")), expected_["ids"][i].get<uint32_t>())
        << texts_[i] << "\n"
        << absl::StrJoin(ids, " ");
    const std::string decoded = tokenizer_->Decode(ids, /*skip_special=*/true);
    EXPECT_EQ(Fnv(decoded), expected_["decoded"][i].get<uint32_t>()) << texts_[i] << "\n"
                                                                     << decoded;
    Ids whole = before;
    whole.insert(whole.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer_->Encode(texts_[i], true), whole) << texts_[i];
    EXPECT_LE(tokenizer_->FewestTokens(texts_[i]), ids.size()) << texts_[i];
  }
}

TEST_P(Family, StreamsTheTextThatDecodeGives) {
  for (const std::string& text : texts_) {
    const Ids ids = tokenizer_->Encode(text, false);
    Detokenizer detokenizer(tokenizer_.get(), {}, /*skip_special=*/true);
    std::string streamed;
    for (const TokenId id : ids) streamed += detokenizer.Append({id});
    streamed += detokenizer.Finish();
    EXPECT_EQ(streamed, tokenizer_->Decode(ids, true)) << text;
  }
}

// Those that are written in a message, also if another text completes them.
TEST_P(Family, SpecialTokensOfAMessageStayText) {
  for (const std::string& text : texts_) {
    const Ids ids = tokenizer_->EncodeChat(text, tokenizer_->FindSpecial(text), false);
    for (const TokenId id : ids) EXPECT_FALSE(tokenizer_->IsSpecial(id)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Family, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

std::unique_ptr<Tokenizer> LoadFamily(const std::string& name) {
  auto tokenizer = Tokenizer::Load(kFixtures + "families/" + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(FamilyTest, AFolderWithoutTokenizerJsonHasItsSpecialTokens) {
  const auto opt = LoadFamily("opt");
  EXPECT_EQ(opt->bos_id(), 2);
  EXPECT_THAT(opt->eos_ids(), ElementsAre(2));
  EXPECT_TRUE(opt->IsSpecial(1));   // <pad>
  EXPECT_FALSE(opt->IsSpecial(0));  // <s>: nothing names it
  EXPECT_EQ(opt->Encode("a", true).front(), 2);

  const auto qwen = LoadFamily("qwen2_files");
  EXPECT_EQ(qwen->bos_id(), -1);
  EXPECT_THAT(qwen->eos_ids(), ElementsAre(qwen->Encode("<|im_end|>", false).at(0)));
  EXPECT_FALSE(qwen->IsSpecial(qwen->Encode("<tool_call>", false).at(0)));

  const auto phi = LoadFamily("phi2");  // its runs of blanks are behind the vocabulary
  EXPECT_EQ(phi->vocab_size(), 938);
  EXPECT_EQ(phi->Encode("a" + std::string(31, ' ') + "b", false).size(), 3);
}

}  // namespace
}  // namespace coppice::tokenizer
