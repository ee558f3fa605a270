#include "loadgen/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/flags/reflection.h"
#include "base/program.h"
#include "loadgen/base_url.h"
#include "loadgen/options.h"

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CustomDataset : public ::testing::Test {
 protected:
  ~CustomDataset() override { std::filesystem::remove(path_); }
  absl::StatusOr<std::vector<Prompt>> Read(const std::string& content) {
    std::ofstream(path_) << content;
    return ReadCustomDataset(path_);
  }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("coppice-dataset-" + std::to_string(::getpid()) + ".jsonl"))
                                .string();
};

TEST_F(CustomDataset, ReadsRowsAndSkipsBlankLines) {
  const auto prompts = Read(
      "{\"prompt\": \"a\", \"completion\": \"unused\"}\n\n"
      "{\"prompt\": [1, 2], \"output_tokens\": 9, \"seed\": 4, \"body\": {\"n\": 2}}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[0].text, "a");
  EXPECT_EQ((*prompts)[1].text, json({1, 2}));
  EXPECT_EQ((*prompts)[1].output_tokens, 9);
  EXPECT_EQ((*prompts)[1].body, json({{"n", 2}}));
}

TEST_F(CustomDataset, BadRowsAreNamedByLine) {
  const auto error = [&](const std::string& content) {
    return std::string(Read(content).status().message());
  };
  EXPECT_THAT(error("{\"prompt\": \"a\"}\nnot json\n"), HasSubstr(":2: expected a JSON object"));
  EXPECT_THAT(error("{\"text\": \"a\"}\n"), HasSubstr(":1: prompt"));
  EXPECT_THAT(error("{\"messages\": []}\n"), HasSubstr(":1: messages"));
  EXPECT_THAT(error("{\"messages\": [1], \"prompt\": \"a\"}\n"), HasSubstr(":1: messages"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"output_tokens\": 0}\n"), HasSubstr("output_tokens"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"seed\": \"x\"}\n"), HasSubstr("seed"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"body\": []}\n"), HasSubstr("body"));
  EXPECT_THAT(error(""), HasSubstr("no prompts"));
  EXPECT_THAT(std::string(ReadCustomDataset("/nowhere/x.jsonl").status().message()),
              AllOf(HasSubstr("/nowhere/x.jsonl"), HasSubstr("No such file")));
}

TEST(RandomDataset, HasTheWantedLengthAndSeed) {
  const std::vector<Prompt> prompts = RandomDataset(3, 17, 5);
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[2].text.size(), 17u);
  EXPECT_EQ(prompts[1].text, RandomDataset(3, 17, 5)[1].text);
  EXPECT_NE(prompts[1].text, RandomDataset(3, 17, 6)[1].text);
}

TEST(RequestBody, RowOverridesExtraBodyOverridesFlags) {
  const BodySettings settings = {
      .model = "m", .output_len = 8, .seed = 100, .fields = {{"temperature", 0.5}, {"n", 3}}};
  const json plain = RequestBody({.text = "p"}, 2, settings);
  EXPECT_EQ(plain["prompt"], "p");
  EXPECT_EQ(plain["max_tokens"], 8);
  EXPECT_EQ(plain["seed"], 102);
  EXPECT_EQ(plain["stream"], true);
  EXPECT_EQ(plain["stream_options"]["include_usage"], true);
  const json row =
      RequestBody({.text = "p", .output_tokens = 5, .seed = 1, .body = {{"n", 4}}}, 2, settings);
  EXPECT_EQ(row["max_tokens"], 5);
  EXPECT_EQ(row["seed"], 1);
  EXPECT_EQ(row["n"], 4);
  EXPECT_EQ(row["temperature"], 0.5);
  BodySettings chat = settings;
  chat.chat = true;
  EXPECT_EQ(RequestBody({.text = "p"}, 0, chat)["messages"][0]["content"], "p");
}

TEST_F(CustomDataset, RowsMayHaveTheMessagesOfAChat) {
  const auto prompts = Read("{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}]}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  const json body = RequestBody((*prompts)[0], 0, {.chat = true, .model = "m"});
  EXPECT_EQ(body["messages"], json({{{"role", "system"}, {"content", "s"}}}));
  EXPECT_FALSE(body.contains("prompt"));
}

TEST(BaseUrl, IsReadInParts) {
  const auto url = ParseBaseUrl("http://[::1]:8001/v2/");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "8001");
  EXPECT_EQ(url->path, "/v2");
  EXPECT_EQ(url->HostHeader(), "[::1]:8001");
  EXPECT_EQ(ParseBaseUrl("http://host")->port, "80");
  for (const char* bad :
       {"https://host", "host:1", "http://", "http://h:0", "http://h:x", "http://[::1"}) {
    EXPECT_FALSE(ParseBaseUrl(bad).ok()) << bad;
  }
}

class Flags : public ::testing::Test {
 protected:
  std::string Error(const std::vector<std::string>& arguments) {
    const absl::Status flags = SetFlags(NormalizeFlagNames(arguments));
    if (!flags.ok()) return std::string(flags.message());
    return std::string(ReadOptions().status().message());
  }
  absl::FlagSaver saver_;
};

TEST_F(Flags, DashesAndUnderscoresAreEqual) {
  EXPECT_THAT(NormalizeFlagNames({"--max-send-lag=1-2", "--a-b", "c-d"}),
              ElementsAre("--max_send_lag=1-2", "--a_b", "c-d"));
  ASSERT_EQ(Error({"--num-prompts", "7", "--max_concurrency=3", "--use-beam-search", "--top-p=0.5",
                   "--extra-body={\"top_p\": 0.25, \"best_of\": 4}", "--metadata=a=b"}),
            "");
  const LoadgenOptions options = *ReadOptions();
  EXPECT_EQ(options.num_prompts, 7);
  EXPECT_EQ(options.max_concurrency, 3);
  EXPECT_EQ(options.body_fields["use_beam_search"], true);
  EXPECT_EQ(options.body_fields["top_p"], 0.25);
  EXPECT_EQ(options.body_fields["best_of"], 4);
  EXPECT_EQ(options.body_fields["ignore_eos"], true);  // random prompts have no natural end
  EXPECT_FALSE(options.body_fields.contains("temperature"));
}

TEST_F(Flags, MethodAndFurtherFieldsOfSpeculationMeet) {
  ASSERT_EQ(Error({"--method=bild", "--extra-body={\"speculative\": {\"allow_lossy\": true}}"}),
            "");
  const LoadgenOptions options = *ReadOptions();
  EXPECT_EQ(options.body_fields["speculative"]["method"], "bild");
  EXPECT_EQ(options.body_fields["speculative"]["allow_lossy"], true);
}

TEST_F(Flags, BadOnesAreNamed) {
  EXPECT_THAT(Error({"--no-such-flag=1"}), HasSubstr("unknown flag --no_such_flag"));
  EXPECT_THAT(Error({"--num-prompts=x"}), HasSubstr("--num_prompts: bad value 'x'"));
  EXPECT_THAT(Error({"--num-prompts"}), HasSubstr("--num_prompts: expected a value"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("unexpected argument 'stray'"));
  EXPECT_THAT(Error({"--request-rate=0"}), HasSubstr("--request_rate"));
  EXPECT_EQ(Error({"--request-rate=inf"}), "");
  EXPECT_THAT(Error({"--extra-body=[1]"}), HasSubstr("--extra_body"));
  EXPECT_EQ(Error({"--extra-body={}"}), "");
  EXPECT_THAT(Error({"--metadata=novalue"}), HasSubstr("--metadata"));
  EXPECT_EQ(Error({"--metadata="}), "");
  EXPECT_THAT(Error({"--dataset-name=custom"}), HasSubstr("--dataset_path"));
  EXPECT_THAT(Error({"--dataset-name=spec_bench"}), HasSubstr("--dataset_name"));
}

}  // namespace
}  // namespace coppice::loadgen
