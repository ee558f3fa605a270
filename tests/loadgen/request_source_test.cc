#include "loadgen/request_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadgen/text_fitter.h"

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

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

json Body(const RequestSource& source, int64_t c, int64_t k,
          const std::vector<std::string>& answers = {}) {
  return json::parse(source.Prepare(c, k, answers).body);
}

TEST(RequestSource, PromptsOfALengthHaveIdsOfTheirOwn) {
  Prompt sized;
  sized.input_len = 17;
  const RequestSource source({sized, sized}, {.seed = 5});
  const json first = Body(source, 0, 0)["prompt"];
  EXPECT_EQ(first.size(), 17u);
  EXPECT_EQ(source.Prepare(0, 0, {}).prompt_tokens, 17);
  EXPECT_EQ(Body(source, 0, 0)["prompt"], first);
  EXPECT_NE(Body(source, 1, 1)["prompt"], first);
  EXPECT_NE(Body(source, 2, 2)["prompt"], first);  // the prompts are repeated, their ids are not
  EXPECT_NE(Body(RequestSource({sized}, {.seed = 6}), 0, 0)["prompt"], first);
  for (const json& id : first) EXPECT_TRUE(id >= 259 && id <= 511) << id;
}

TEST(RequestSource, LaterTurnsFollowTheAnswers) {
  Prompt prompt;
  prompt.text = "one";
  prompt.later_turns = {"two", "three"};
  const RequestSource chat({prompt}, {.chat = true, .seed = 10});
  EXPECT_EQ(chat.Turns(0), 3);
  EXPECT_TRUE(chat.has_later_turns());
  EXPECT_EQ(Body(chat, 0, 0)["messages"], json({{{"role", "user"}, {"content", "one"}}}));
  const json third = Body(chat, 0, 2, {"A", "B"});
  EXPECT_EQ(third["seed"], 12);
  EXPECT_EQ(third["messages"], json({{{"role", "user"}, {"content", "one"}},
                                     {{"role", "assistant"}, {"content", "A"}},
                                     {{"role", "user"}, {"content", "two"}},
                                     {{"role", "assistant"}, {"content", "B"}},
                                     {{"role", "user"}, {"content", "three"}}}));
  const RequestSource text({prompt}, {});
  EXPECT_EQ(Body(text, 0, 1, {" A"})["prompt"], "one A\n\ntwo");
}

TEST(RequestSource, SaysHowManyChoicesARequestHas) {
  Prompt prompt;
  prompt.text = "p";
  EXPECT_EQ(RequestSource({prompt}, {.fields = {{"n", 3}}}).Prepare(0, 0, {}).choices, 3);
  EXPECT_EQ(RequestSource({prompt}, {}).Prepare(0, 0, {}).choices, 1);
}

// A vocabulary with a token for every started group of four letters, and one token before the text.
int CountGroups(const std::string& text) {
  int count = 1, letters = 0;
  for (const char c : text) {
    letters = c == ' ' ? 0 : letters + 1;
    count += letters % 4 == 1;
  }
  return count;
}

TEST(TextFitter, FindsTextsOfEveryLength) {
  int calls = 0;
  const CountTokens count = [&](const std::string& text) {
    ++calls;
    return CountGroups(text);
  };
  for (int tokens = 2; tokens < 400; tokens += 7) {
    const auto text = FitText(tokens, tokens, count);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(CountGroups(*text), tokens) << *text;
  }
  EXPECT_LT(calls, 57 * 12);
  EXPECT_NE(*FitText(50, 1, count), *FitText(50, 2, count));
}

TEST(TextFitter, SaysWhenThereIsNone) {
  const auto template_alone = [](const std::string&) { return 30; };
  EXPECT_THAT(std::string(FitText(10, 1, template_alone).status().message()),
              HasSubstr("no text of exactly 10 tokens"));
  const auto broken = [](const std::string&) -> absl::StatusOr<int> {
    return absl::UnavailableError("gone");
  };
  EXPECT_EQ(FitText(10, 1, broken).status().message(), "gone");
}

}  // namespace
}  // namespace coppice::loadgen
