// Vocabularies as the files of a Hugging Face folder. That these encode as the folder does is
// tested in tests/tokenizer/gguf_test.cc.
#include "model_files/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_files/split_patterns.h"
#include "nlohmann/json.hpp"
#include "tests/model_files/sample_gguf.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;
using test::GgufBuilder;

class GgufTokenizerTest : public testing::Test {
 protected:
  GgufFile Open(const GgufBuilder& builder) {
    dir_.Write("F.gguf", builder.Bytes());
    return *GgufFile::Open(dir_.File("F.gguf"));
  }
  std::string Refusal(const GgufBuilder& builder) {
    const auto text = GgufTokenizer(Open(builder));
    const std::string said(text.status().message());
    const size_t end = said.find("F.gguf: ");
    return end == std::string::npos ? said : said.substr(end + 8);
  }
  test::TempDir dir_;
};

GgufBuilder ByteLevel() {
  GgufBuilder file;
  test::SetByteVocabulary(100, &file);
  return file;
}

GgufBuilder SentencePiece() {
  GgufBuilder file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"})
      .I32s("tokenizer.ggml.token_type", {2, 3, 3, 1})
      .F32s("tokenizer.ggml.scores", {0, 0, 0, -1})
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2);
  return file;
}

TEST_F(GgufTokenizerTest, SettingsOfTokens) {
  const Json config =
      *GgufTokenizerConfig(Open(ByteLevel().Text("tokenizer.chat_template", "{{ messages }}")));
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["chat_template"], "{{ messages }}");
  EXPECT_EQ(config["add_bos_token"], false);
  EXPECT_EQ(config.count("pad_token"), 0u);
  const Json other = *GgufTokenizerConfig(Open(ByteLevel()
                                                   .Text("tokenizer.ggml.pre", "llama-bpe")
                                                   .U32("tokenizer.ggml.padding_token_id", 3)));
  EXPECT_EQ(other["add_bos_token"], true);
  EXPECT_EQ(other["pad_token"], "\xC4\x81");
  EXPECT_EQ((*GgufTokenizerConfig(Open(SentencePiece())))["add_bos_token"], true);
  EXPECT_EQ((*GgufTokenizerConfig(Open(
                SentencePiece().Bool("tokenizer.ggml.add_bos_token", false))))["add_bos_token"],
            false);
}

// Those that the file names, and those that end a turn of its template.
TEST_F(GgufTokenizerTest, TokensThatEndAnAnswer) {
  GgufBuilder file = SentencePiece();
  file.Texts("tokenizer.ggml.tokens",
             {"<unk>", "<s>", "</s>", "<|im_end|>", "<|end|>", "<|eot_id|>"})
      .I32s("tokenizer.ggml.token_type", {2, 3, 3, 3, 3, 1})
      .F32s("tokenizer.ggml.scores", std::vector<float>(6))
      .Text("tokenizer.chat_template", "<|im_end|> <|eot_id|>");
  EXPECT_EQ((*GgufGenerationConfig(Open(file)))["eos_token_id"], Json({2, 3}));
  file.U32("tokenizer.ggml.eot_token_id", 4);
  EXPECT_EQ((*GgufGenerationConfig(Open(file)))["eos_token_id"], Json({2, 3, 4}));
  file.U32("tokenizer.ggml.eos_token_id", UINT32_MAX);  // not given
  EXPECT_EQ((*GgufGenerationConfig(Open(file)))["eos_token_id"], Json({3, 4}));
}

TEST_F(GgufTokenizerTest, NamesWhatCannotBeServed) {
  EXPECT_EQ(Refusal(ByteLevel().Text("tokenizer.ggml.model", "bert")),
            "key tokenizer.ggml.model: bert is not served (gpt2 and llama are)");
  EXPECT_EQ(Refusal(ByteLevel().Text("tokenizer.ggml.pre", "klingon")),
            absl::StrCat("key tokenizer.ggml.pre: klingon is not served (", SplitPatternNames(),
                         " are)"));
  EXPECT_EQ(Refusal(ByteLevel().I32s("tokenizer.ggml.token_type", {1, 1})),
            "key tokenizer.ggml.token_type: 2 values, expected 100, one for each token");
  EXPECT_EQ(Refusal(ByteLevel().Texts("tokenizer.ggml.merges", {"a b"})),
            "key tokenizer.ggml.merges[0]: 'a b', expected two tokens that form a third");
  EXPECT_EQ(Refusal(ByteLevel().U32("tokenizer.ggml.bos_token_id", 100)),
            "key tokenizer.ggml.bos_token_id: 100, expected less than 100, the tokens");
  EXPECT_EQ(Refusal(ByteLevel()
                        .Texts("tokenizer.ggml.tokens", {"a", "b", "a"})
                        .I32s("tokenizer.ggml.token_type", {1, 1, 1})),
            "key tokenizer.ggml.tokens[2]: a, which is token 0 already");
  EXPECT_EQ(Refusal(ByteLevel()
                        .Texts("tokenizer.ggml.tokens", {"a", ""})
                        .I32s("tokenizer.ggml.token_type", {1, 1})),
            "key tokenizer.ggml.tokens[1]: expected a text of a token");
  EXPECT_EQ(Refusal(SentencePiece().I32s("tokenizer.ggml.token_type", {2, 3, 3, 7})),
            "key tokenizer.ggml.token_type[3]: 7, expected 1 to 6");
  EXPECT_EQ(Refusal(SentencePiece().I32s("tokenizer.ggml.token_type", {1, 3, 3, 1})),
            "key tokenizer.ggml.token_type: 0 unknown tokens, expected one");
  EXPECT_EQ(Refusal(SentencePiece().F32s("tokenizer.ggml.scores", {0})),
            "key tokenizer.ggml.scores: 1 values, expected 4, one for each token");
}

}  // namespace
}  // namespace coppice::model_files
