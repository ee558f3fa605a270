#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "tests/tokenizer/fixture.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class MalformedTokenizer : public ::testing::Test {
 protected:
  MalformedTokenizer() {
    dir_ = std::filesystem::temp_directory_path() /
           ("coppice-tokenizer-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  ~MalformedTokenizer() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }
  static std::string ReadAll(const std::string& name) {
    std::ifstream file(kFixtures + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns "" if it loads.
  std::string LoadError() {
    const auto tokenizer = Tokenizer::Load(dir_.string());
    if (tokenizer.ok()) return "";
    return std::string(tokenizer.status().message());
  }
  std::string ErrorOf(const json& tokenizer) {
    Write("tokenizer.json", tokenizer.dump());
    return LoadError();
  }

  std::filesystem::path dir_;
};

TEST_F(MalformedTokenizer, MissingFilesAreNamed) {
  const char* expected = "expected tokenizer.json, tokenizer.model, or vocab.json and merges.txt";
  EXPECT_THAT(LoadError(), EndsWith(expected));
  Write("tekken.json", "{}");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr(expected), HasSubstr("tekken.json is there")));
}

TEST_F(MalformedTokenizer, APipeOrAFileThatIsTooLargeIsNamedAtOnce) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json",
                           "tokenizer.json", "tokenizer.model", "vocab.json"}) {
    ASSERT_EQ(mkfifo((dir_ / name).c_str(), 0600), 0);  // nobody writes to it
    EXPECT_THAT(LoadError(), HasSubstr(std::string(name) + ": not a regular file but a pipe"));
    std::filesystem::remove(dir_ / name);
    Write(name, "");
    std::filesystem::resize_file(dir_ / name, uint64_t{6} << 30);  // sparse
    EXPECT_THAT(LoadError(), HasSubstr(std::string(name) + ": 6442450944 bytes, expected at most"));
    std::filesystem::remove(dir_ / name);
  }
}

TEST_F(MalformedTokenizer, TruncatedJsonIsAnErrorOfOneLine) {
  const std::string whole = ReadAll("byte_level_llama3/tokenizer.json");
  for (size_t n = 0; n + 2 < whole.size(); n += 97) {
    Write("tokenizer.json", whole.substr(0, n));
    EXPECT_THAT(LoadError(), AllOf(HasSubstr("tokenizer.json"), Not(HasSubstr("\n")))) << n;
  }
}

TEST_F(MalformedTokenizer, TruncatedModelIsAnErrorOfOneLine) {
  const std::string whole = ReadAll("sentencepiece_prefix/tokenizer.model");
  for (size_t n = 0; n + 64 < whole.size(); n += 53) {
    Write("tokenizer.model", whole.substr(0, n));
    EXPECT_THAT(LoadError(), AllOf(HasSubstr("tokenizer.model"), Not(HasSubstr("\n")))) << n;
  }
}

TEST_F(MalformedTokenizer, ATableOfTiktokenIsRefusedByName) {
  Write("tokenizer.model", "IQ== 0\nIg== 1\nIw== 2\n");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("tokenizer.model"), HasSubstr("tiktoken")));
}

TEST_F(MalformedTokenizer, ChangedBytesNeverCrash) {
  uint32_t state = 3;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (const char* name :
       {"sentencepiece_no_prefix/tokenizer.model", "byte_fallback_prepend/tokenizer.json"}) {
    const std::string whole = ReadAll(name);
    const std::string file = std::filesystem::path(name).filename();
    for (int n = 0; n < 100; ++n) {
      std::string changed = whole;
      for (int i = 0; i < 3; ++i) changed[next() % changed.size()] = static_cast<char>(next());
      Write(file, changed);
      const auto tokenizer = Tokenizer::Load(dir_.string());
      if (!tokenizer.ok()) continue;
      const auto ids = (*tokenizer)->Encode("The forest grows again.", true);
      (*tokenizer)->Decode(ids, false);
    }
    std::filesystem::remove(dir_ / file);
  }
}

TEST_F(MalformedTokenizer, UnknownComponentsAreRefusedByName) {
  const json good = ReadFixture("byte_level_gpt2/tokenizer.json");
  ASSERT_EQ(ErrorOf(good), "");
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    json bad = good;
    bad[part] = {{"type", "Magic"}};
    EXPECT_THAT(ErrorOf(bad),
                AllOf(HasSubstr("tokenizer.json"), HasSubstr(part), HasSubstr("Magic")));
  }
  json bad = good;
  bad["model"]["type"] = "Unigram";
  EXPECT_THAT(ErrorOf(bad), AllOf(HasSubstr("Unigram"), HasSubstr("expected BPE")));
  bad = good;
  bad["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_THAT(ErrorOf(bad), HasSubstr("end_of_word_suffix"));
  bad = good;
  bad["decoder"] = nullptr;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("decoder: expected"));
}

TEST_F(MalformedTokenizer, VocabularyAndMergesAreChecked) {
  const json good = ReadFixture("byte_level_gpt2/tokenizer.json");
  json bad = good;
  bad["model"]["vocab"]["zzz"] = 5;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("id 5 is given to both"));
  bad = good;
  bad["model"]["vocab"]["zzz"] = -1;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("expected an id"));
  bad = good;
  bad["model"]["merges"].push_back("q zz");
  EXPECT_THAT(ErrorOf(bad), HasSubstr("expected all three in the vocabulary"));
  bad = good;
  bad["model"]["merges"][0] = 7;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model: merges[0]"));
  bad = good;
  bad["model"]["merges"] = json::object();
  EXPECT_THAT(ErrorOf(bad), HasSubstr("merges: expected a list"));
  bad = good;
  bad["added_tokens"][0]["id"] = 3;
  EXPECT_THAT(ErrorOf(bad), HasSubstr("does not agree with the vocabulary"));
  bad = good;
  bad["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "a("}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("pattern a("));
  bad = good;
  bad["added_tokens"][0]["content"] = std::string(513, '<');
  EXPECT_THAT(ErrorOf(bad), HasSubstr("special token <<<"));
}

TEST_F(MalformedTokenizer, ValuesOfOtherTypesInTheTablesAreNamed) {
  const json good = ReadFixture("byte_level_gpt2/tokenizer.json");
  for (const json& value : {json("x"), json(1.5), json(), json::array(), json::object()}) {
    json bad = good;
    bad["model"]["vocab"]["zzz"] = value;
    EXPECT_THAT(ErrorOf(bad), HasSubstr("model: vocab: zzz: expected an id from 0")) << value;
    bad = good;
    bad["model"]["vocab"] = value;
    EXPECT_THAT(ErrorOf(bad), HasSubstr("model: vocab: expected an object of token to id"));
    bad = good;
    bad["model"]["merges"][1] = value;
    EXPECT_THAT(ErrorOf(bad), HasSubstr("model: merges[1]: expected")) << value;
    bad["model"]["merges"][1] = {"a", value};
    EXPECT_THAT(ErrorOf(bad), HasSubstr("model: merges[1]: ")) << value;
  }
  json bad = good;
  bad["model"]["merges"][1] = {"a", "b", "c"};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model: merges[1]: expected"));
  bad["model"]["merges"][1] = {"a"};
  EXPECT_THAT(ErrorOf(bad), HasSubstr("model: merges[1]: expected"));
  bad = good;
  bad["model"].erase("merges");
  EXPECT_THAT(ErrorOf(bad), HasSubstr("merges"));
  bad = good;
  bad["version"] = {{"model", {{"vocab", {{"a", "b"}}}, {"merges", {7}}}}};  // not the model's
  EXPECT_EQ(ErrorOf(bad), "");
}

class MalformedVocabFolder : public MalformedTokenizer {
 protected:
  MalformedVocabFolder() {
    for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json", "config.json",
                             "special_tokens_map.json"})
      Write(name, ReadAll(std::string("families/opt/") + name));
  }
  void Remove(const char* name) { std::filesystem::remove(dir_ / name); }
};

TEST_F(MalformedVocabFolder, BadMergesAreNamedWithFileAndLine) {
  ASSERT_EQ(LoadError(), "");
  const std::string good = ReadAll("families/opt/merges.txt");
  const size_t second = good.find('\n', good.find('\n') + 1) + 1;  // where the third line begins
  const auto with_line = [&](const std::string& line) {
    Write("merges.txt", good.substr(0, second) + line + "\n" + good.substr(second));
    return LoadError();
  };
  EXPECT_THAT(with_line("a b c"), HasSubstr("merges.txt:3: expected two tokens"));
  EXPECT_THAT(with_line("ab"), HasSubstr("merges.txt:3: expected two tokens"));
  EXPECT_THAT(with_line(""), HasSubstr("merges.txt:3: expected two tokens"));
  EXPECT_THAT(with_line(" a"), HasSubstr("merges.txt:3: expected two tokens"));
  EXPECT_THAT(with_line("zq a"), EndsWith("merges.txt:3: token zq is not in vocab.json"));
  EXPECT_THAT(with_line("a zq"), EndsWith("merges.txt:3: token zq is not in vocab.json"));
  EXPECT_THAT(with_line("q z"), EndsWith("merges.txt:3: token qz is not in vocab.json"));
  Write("merges.txt", absl::StrReplaceAll(good, {{"\n", "\r\n"}}));
  EXPECT_EQ(LoadError(), "");
  Write("merges.txt", "");
  EXPECT_EQ(LoadError(), "");
  Remove("merges.txt");
  EXPECT_THAT(LoadError(), EndsWith(": vocab.json, but no merges.txt"));
  Write("merges.txt", good);
  Remove("vocab.json");
  EXPECT_THAT(LoadError(), EndsWith(": merges.txt, but no vocab.json"));
}

TEST_F(MalformedVocabFolder, BadVocabulariesAreNamed) {
  for (const char* bad : {"[1]", "{}", "{\"a\": 1", "{\"a\": \"b\"}", "{\"a\": -1}", "7",
                          "{\"a\": {\"b\": 1}}", "{\"a\": 3, \"b\": 3}"}) {
    Write("vocab.json", bad);
    Write("merges.txt", "");
    EXPECT_THAT(LoadError(), AllOf(HasSubstr("vocab.json: "), Not(HasSubstr("\n")))) << bad;
  }
}

TEST_F(MalformedVocabFolder, ClassesThatAreNotServedAreRefusedByName) {
  const auto with_class = [this](const json& name) {
    Write("tokenizer_config.json", json{{"tokenizer_class", name}}.dump());
    return LoadError();
  };
  EXPECT_THAT(with_class("RobertaTokenizer"),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("RobertaTokenizer"),
                    HasSubstr("expected GPT2Tokenizer")));
  EXPECT_THAT(with_class(7), HasSubstr("tokenizer_class: expected a name"));
  EXPECT_EQ(with_class("GPT2TokenizerFast"), "");
  Remove("tokenizer_config.json");
  EXPECT_EQ(LoadError(), "");  // config.json: opt
  Write("config.json", R"({"model_type": "bart"})");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("no tokenizer_class"), HasSubstr("\"bart\"")));
}

// As in Transformers, which does not read config.json for it.
TEST_F(MalformedVocabFolder, TheBeginIsThatOfTheTokenizerAndNotOfTheModel) {
  Write("config.json", R"({"model_type": "opt", "bos_token_id": 5})");
  const auto front = [this] {
    const auto tokenizer = Tokenizer::Load(dir_.string());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->Encode("a", true).front() : -1;
  };
  EXPECT_EQ(front(), 2);
  Remove("special_tokens_map.json");
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": null})");
  EXPECT_GT(front(), 5);  // the text itself
}

TEST_F(MalformedVocabFolder, AddedTokensAreChecked) {
  const auto with_added = [this](const char* added) {
    Write("added_tokens.json", added);
    return LoadError();
  };
  EXPECT_EQ(with_added(R"({"new": 900, "newer": 905})"), "");
  EXPECT_THAT(with_added(R"({"new": 5})"),
              HasSubstr("added_tokens.json: added token new: id 5 does not agree"));
  EXPECT_THAT(with_added(R"({"</s>": 900})"), HasSubstr("added token </s>: id 900"));
  EXPECT_THAT(with_added(R"({"new": "x"})"), HasSubstr("added_tokens.json: added token"));
  EXPECT_THAT(with_added(R"({"": 900})"), HasSubstr("added_tokens.json: added token"));
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"x": {"content": "y"}}})");
  EXPECT_THAT(LoadError(), HasSubstr("added_tokens_decoder: x: expected id"));
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": [1]})");
  EXPECT_THAT(LoadError(), HasSubstr("tokenizer_config.json: added_tokens_decoder"));
}

TEST_F(MalformedTokenizer, FolderSettingsAreChecked) {
  Write("tokenizer.model", ReadAll("sentencepiece_prefix/tokenizer.model"));
  Write("config.json", R"({"bos_token_id": 1, "eos_token_id": 99999})");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("tokenizer.model"), HasSubstr("99999")));
  Write("config.json", R"({"eos_token_id": "two"})");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("config.json"), HasSubstr("eos_token_id")));
  Write("config.json", "[1");
  EXPECT_THAT(LoadError(), AllOf(HasSubstr("config.json"), HasSubstr("JSON object")));
}

}  // namespace
}  // namespace coppice::tokenizer
