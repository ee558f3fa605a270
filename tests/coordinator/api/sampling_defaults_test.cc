#include "coordinator/api/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;

class SamplingDefaultsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  absl::StatusOr<SamplingDefaults> Load(const std::string& text) {
    std::ofstream(dir_ + "/generation_config.json") << text;
    return SamplingDefaults::Load(dir_);
  }

  // The request of these fields on a server with these defaults.
  static GenerateRequest Request(const SamplingDefaults& defaults, const std::string& fields) {
    ApiContext context = api_text::Context();
    context.sampling_defaults = &defaults;
    return std::get<GenerateRequest>(
        ParseCompletion("{\"prompt\": \"hi\"" + fields + "}", "", context));
  }

  const std::string dir_ =
      ::testing::TempDir() + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

constexpr char kFile[] =
    R"({"do_sample": true, "eos_token_id": [2], "temperature": 0.6, "top_k": 20, "top_p": 0.95,
        "min_p": 0.0, "repetition_penalty": 1.05, "max_length": 20})";

TEST_F(SamplingDefaultsTest, FillWhatTheRequestLeavesOut) {
  const SamplingDefaults defaults = *Load(kFile);
  EXPECT_EQ(defaults.Text(), "temperature 0.6, top_k 20, top_p 0.95, repetition_penalty 1.05");
  const sampling::SamplingParams all = Request(defaults, "").params.sampling;
  EXPECT_EQ(all.temperature, 0.6);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.top_p, 0.95);
  EXPECT_EQ(all.repetition_penalty, 1.05);
  const sampling::SamplingParams some =
      Request(defaults, R"(, "temperature": 1, "top_k": -1)").params.sampling;
  EXPECT_EQ(some.temperature, 1);
  EXPECT_EQ(some.top_k, 0);
  EXPECT_EQ(some.top_p, 0.95);
  EXPECT_EQ(Request(defaults, R"(, "do_sample": false)").params.sampling.temperature, 0);
}

// Scores of beam search are raw log-probabilities; a joint scope works on whole layers.
TEST_F(SamplingDefaultsTest, ApplyOnlyWhereRowsAreSampled) {
  const SamplingDefaults defaults = *Load(kFile);
  const auto penalty = [&](const char* fields) {
    return Request(defaults, fields).params.sampling.repetition_penalty;
  };
  EXPECT_EQ(penalty(R"(, "use_beam_search": true)"), 1);
  EXPECT_EQ(penalty(R"(, "decoding": "beam_sampling", "sampling_scope": "joint")"), 1);
  EXPECT_EQ(penalty(R"(, "decoding": "beam_sampling")"), 1.05);
  const SamplingDefaults greedy = *Load(R"({"temperature": 0})");
  EXPECT_EQ(Request(greedy, "").params.sampling.temperature, 0);
  EXPECT_EQ(Request(greedy, R"(, "decoding": "beam_sampling")").params.sampling.temperature, 1);
}

TEST_F(SamplingDefaultsTest, AreNoneWithoutAFileOrAtNeutralValues) {
  EXPECT_TRUE(SamplingDefaults::Load(dir_)->empty());
  EXPECT_TRUE(Load(R"({"temperature": 1.0, "top_k": -1, "top_p": null})")->empty());
}

TEST_F(SamplingDefaultsTest, BadFilesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "is not a JSON object"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": "hot"})", "temperature: is no number"},
      {R"({"top_k": 1.5})", "top_k: is no number"},
      {R"({"top_p": 7})", "top_p"}};
  for (const auto& [text, message] : cases) {
    const absl::Status status = Load(text).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("generation_config.json: ")) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace coppice::coordinator
