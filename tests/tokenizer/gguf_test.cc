// Vocabularies in GGUF files encode and decode as the folders that the reference libraries made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/regular_file.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/tokenizer/fixture.h"
#include "tokenizer/chat_template/chat_prompt.h"
#include "tokenizer/model_folder.h"
#include "tokenizer/sentencepiece_model.pb.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {
namespace {

using Ids = std::vector<TokenId>;
using Json = nlohmann::json;
using test::GgufBuilder;

constexpr int kNormal = 1, kControl = 3, kUserDefined = 4;

// And what a model has beside them.
void PutTokens(const std::vector<std::string>& tokens, const std::vector<int32_t>& types,
               GgufBuilder* file) {
  const auto rows = static_cast<int64_t>(tokens.size());
  file->Text("general.architecture", "llama");
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"context_length", 8},
                                                                  {"embedding_length", 2},
                                                                  {"feed_forward_length", 2},
                                                                  {"attention.head_count", 1}})
    file->U32(absl::StrCat("llama.", key), value);
  file->F32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  file->F32Tensor("token_embd.weight", {rows, 2}, std::vector<float>(2 * rows));
  file->Texts("tokenizer.ggml.tokens", tokens).I32s("tokenizer.ggml.token_type", types);
}

// The content of a tokenizer.json of byte-level BPE as converters write it.
GgufBuilder ByteLevel(const Json& json, const std::string& pre, const Ids& before) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto put = [&](size_t id, const std::string& text, int type) {
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1, kNormal);
    }
    tokens[id] = text;
    types[id] = type;
  };
  for (const auto& [text, id] : json["model"]["vocab"].items()) put(id, text, kNormal);
  for (const Json& added : json["added_tokens"])
    put(added["id"], added["content"], added["special"] ? kControl : kUserDefined);
  std::vector<std::string> merges;
  for (const Json& merge : json["model"]["merges"]) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : absl::StrCat(merge[0].get<std::string>(), " ",
                                                      merge[1].get<std::string>()));
  }
  GgufBuilder file;
  file.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", pre);
  file.Texts("tokenizer.ggml.merges", merges);
  PutTokens(tokens, types, &file);
  file.Bool("tokenizer.ggml.add_bos_token", !before.empty());
  if (!before.empty()) file.U32("tokenizer.ggml.bos_token_id", before[0]);
  return file;
}

GgufBuilder SentencePiece(const std::string& folder, const Ids& before) {
  sentencepiece_file::Model model;
  EXPECT_TRUE(
      model.ParseFromString(*ReadRegularFile(folder + "/tokenizer.model", kMostTableBytes)));
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  for (const auto& piece : model.piece()) {
    tokens.push_back(piece.text());
    types.push_back(piece.kind());
    scores.push_back(piece.score());
  }
  GgufBuilder file;
  file.Text("tokenizer.ggml.model", "llama").F32s("tokenizer.ggml.scores", scores);
  PutTokens(tokens, types, &file);
  file.Bool("tokenizer.ggml.add_space_prefix", model.normalizer().add_dummy_prefix());
  file.Bool("tokenizer.ggml.remove_extra_whitespaces",
            model.normalizer().remove_extra_whitespaces());
  file.U32("tokenizer.ggml.bos_token_id", model.trainer().bos_id());
  file.U32("tokenizer.ggml.eos_token_id", model.trainer().eos_id());
  file.Bool("tokenizer.ggml.add_bos_token", !before.empty());
  return file;
}

struct Vocabulary {
  const char* fixture;
  const char* pre;  // "": of SentencePiece's kind
};

class EveryVocabulary : public testing::TestWithParam<Vocabulary> {};

TEST_P(EveryVocabulary, EncodesAndDecodesAsItsFolder) {
  const std::string fixture = GetParam().fixture, pre = GetParam().pre;
  const Json expected = ReadFixture(fixture + "/expected.json");
  const Ids before = expected["before"].get<Ids>();
  const test::TempDir dir;
  const GgufBuilder file = pre.empty()
                               ? SentencePiece(kFixtures + fixture, before)
                               : ByteLevel(ReadFixture(fixture + "/tokenizer.json"), pre, before);
  dir.Write("F.gguf", file.Bytes());
  const auto tokenizer = Tokenizer::Load(dir.File("F.gguf"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto folder = Tokenizer::Load(kFixtures + fixture);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*tokenizer)->vocab_size(), (*folder)->vocab_size());
  const auto texts = ReadFixture("texts.json").get<std::vector<std::string>>();
  for (size_t i = 0; i < texts.size(); ++i) {
    // The format does not say that a token takes the spaces beside it, as this one does.
    if (absl::StrContains(texts[i], "<|mid|>")) continue;
    Ids ids = expected["texts"][i]["ids"].get<Ids>();
    EXPECT_EQ((*tokenizer)->Encode(texts[i], false), ids) << texts[i];
    EXPECT_EQ((*tokenizer)->Decode(ids, true), expected["texts"][i]["decoded"]) << texts[i];
    ids.insert(ids.begin(), before.begin(), before.end());
    EXPECT_EQ((*tokenizer)->Encode(texts[i], true), ids) << texts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryVocabulary,
                         testing::Values(Vocabulary{"byte_level_gpt2", "gpt-2"},
                                         Vocabulary{"byte_level_llama3", "llama-bpe"},
                                         Vocabulary{"byte_level_qwen2", "qwen2"},
                                         Vocabulary{"sentencepiece_prefix", ""},
                                         Vocabulary{"sentencepiece_no_prefix", ""},
                                         Vocabulary{"sentencepiece_unknown", ""}),
                         [](const auto& info) { return std::string(info.param.fixture); });

// Every way to cut a text into words can be read, and cuts at least between letters and signs.
TEST(GgufTokenizer, ReadsEveryWayToCutWords) {
  const Json json = ReadFixture("byte_level_gpt2/tokenizer.json");
  for (const char* pre :
       {"gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "gpt-4o", "tekken", "default"}) {
    const test::TempDir dir;
    dir.Write("F.gguf", ByteLevel(json, pre, {}).Bytes());
    const auto tokenizer = Tokenizer::Load(dir.File("F.gguf"));
    ASSERT_TRUE(tokenizer.ok()) << pre << ": " << tokenizer.status();
    const std::string text = "Word's 1234 d\xC3\xA9j\xC3\xA0 /*x*/\n\n  end";
    EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(text, false), true), text) << pre;
  }
}

TEST(GgufTokenizer, GivesSpecialTokensAndTheChatTemplate) {
  const test::TempDir dir;
  GgufBuilder file = ByteLevel(ReadFixture("byte_level_llama3/tokenizer.json"), "llama-bpe", {});
  file.U32("tokenizer.ggml.bos_token_id", 3).U32("tokenizer.ggml.eos_token_id", 5);
  file.U32("tokenizer.ggml.eot_token_id", 4);
  file.Text("tokenizer.chat_template", "{% for m in messages %}[{{ m.content }}]{% endfor %}");
  dir.Write("F.gguf", file.Bytes());
  const std::string path = dir.File("F.gguf");
  const auto settings = ReadSpecialTokenSettings(path);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->bos_id, 3);
  EXPECT_THAT(settings->eos_ids, testing::ElementsAre(4, 5));
  const auto tokenizer = Tokenizer::Load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = ChatPrompt::Load(path, "", tokenizer->get());
  ASSERT_TRUE(chat.ok() && *chat != nullptr) << chat.status();
  const auto ids =
      (*chat)->Encode({.messages = Json::parse(R"([{"role":"user","content":"Hi"}])")}, {});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT((*tokenizer)->Decode(*ids, true), testing::HasSubstr("[Hi]"));
}

}  // namespace
}  // namespace coppice::tokenizer
