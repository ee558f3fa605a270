// Chat completions through a whole coordinator to a fake replica: the form of answers and streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A sample repeats the prompt in lower case. Beams: "b" becomes stable, then two hypotheses end.
std::vector<proto::SequenceUpdate> Talk(const proto::StartSequence& start) {
  if (start.decoding().kind() == "multinomial") {
    std::string prompt;
    for (const TokenId id : start.prompt()) prompt += ByteTokenizer().TokenBytes(id, true);
    return SayText(prompt);
  }
  std::vector<proto::SequenceUpdate> updates(2);
  updates[0].add_stable_tokens('b');
  updates[1].set_finished(true);
  *updates[1].add_hypotheses() = MakeHypothesis(Bytes("best", true), -1, true);
  *updates[1].add_hypotheses() = MakeHypothesis(Bytes("beast"), -2, false);
  *updates[1].mutable_stats() = MakeStats();
  return updates;
}

class ChatServingTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    chat_template_ = "{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}";
  }
  RawAnswer Send(const std::string& fields) {
    const std::string body = absl::StrCat(
        R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40)", fields, "}");
    return Ask(absl::StrReplaceAll(Post(body), {{"/v1/completions", "/v1/chat/completions"}}));
  }
  json Answer(const std::string& fields) {
    const RawAnswer answer = Send(fields);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  // The events of a stream without the last, which must be [DONE].
  std::vector<json> Events(const std::string& fields) {
    const std::string body = Send(absl::StrCat(R"(, "stream": true)", fields)).body;
    std::vector<json> events;
    EXPECT_THAT(body, ::testing::EndsWith("data: [DONE]\n\n"));
    for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      events.push_back(json::parse(body.substr(at + 6, end - at - 6)));
      at = end;
    }
    return events;
  }
};

TEST_F(ChatServingTest, AnswersWithAMessage) {
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  const json answer = Answer(R"(, "seed": 1)");
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_THAT(answer["id"].get<std::string>(), StartsWith("chatcmpl-"));
  const json& choice = answer["choices"].at(0);
  EXPECT_EQ(choice["message"], json({{"role", "assistant"}, {"content", "[u:hi]"}}));
  EXPECT_FALSE(choice.contains("text"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(Metric("coppice_http_requests_total{handler=\"chat_completions\",method=\"POST\","
                   "status=\"2xx\"}"),
            1);
}

TEST_F(ChatServingTest, BeamsAreChoicesWithMessages) {
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  const json choices = Answer(R"(, "use_beam_search": true, "n": 2)")["choices"];
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0]["message"]["content"], "best");
  EXPECT_EQ(choices[1]["message"]["content"], "beast");
  EXPECT_EQ(choices[1]["message"]["role"], "assistant");
}

TEST_F(ChatServingTest, TheRoleIsInTheFirstDeltaOfEachIndexAlone) {
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  for (const char* fields :
       {R"(, "seed": 1)", R"(, "seed": 1, "n": 3)", R"(, "use_beam_search": true, "n": 2)"}) {
    std::map<int, std::string> text, finish;
    std::map<int, int> events_of;
    for (const json& event : Events(fields)) {
      EXPECT_EQ(event["object"], "chat.completion.chunk");
      for (const json& choice : event["choices"]) {
        const int index = choice["index"];
        const json& delta = choice["delta"];
        EXPECT_EQ(delta.contains("role"), events_of[index]++ == 0) << event;
        EXPECT_FALSE(choice.contains("text") || choice.contains("message"));
        if (delta.contains("content")) text[index] += delta["content"].get<std::string>();
        EXPECT_EQ(finish.count(index), 0u) << "an event after the end of its index";
        if (choice["finish_reason"].is_string()) finish[index] = choice["finish_reason"];
      }
    }
    const json answer = Answer(fields);
    for (const json& choice : answer["choices"]) {
      EXPECT_EQ(text[choice["index"]], choice["message"]["content"]) << fields;
      EXPECT_EQ(finish[choice["index"]], choice["finish_reason"]) << fields;
    }
  }
}

TEST_F(ChatServingTest, UsageComesLast) {
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  const std::vector<json> events = Events(R"(, "stream_options": {"include_usage": true})");
  ASSERT_GT(events.size(), 2u);
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_TRUE(events[i].at("usage").is_null());
  EXPECT_EQ(events.back()["choices"], json::array());
  EXPECT_EQ(events.back()["usage"]["total_tokens"], 13);
  EXPECT_EQ(events.back()["object"], "chat.completion.chunk");
}

TEST_F(ChatServingTest, TheModelSaysWhetherItServesChat) {
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  EXPECT_EQ(json::parse(Ask(Get("/v1/models/demo")).body)["capabilities"]["chat"], true);
  EXPECT_EQ(Ask(Get("/v1/chat/completions")).status, 405);
}

TEST_F(ChatServingTest, WithoutATemplateMessagesAreRefused) {
  chat_template_ = "";
  StartCluster();
  const auto worker = Join("replica-0", Talk);
  WaitReady();
  const RawAnswer answer = Send("");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("no_chat_template"));
  EXPECT_EQ(json::parse(Ask(Get("/v1/models/demo")).body)["capabilities"]["chat"], false);
  EXPECT_EQ(Metric("coppice_request_refused_total{code=\"no_chat_template\",model_name=\"demo\"}"),
            1);
}

}  // namespace
}  // namespace coppice::coordinator
