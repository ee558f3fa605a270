// Calls of tools and reasoning through a whole coordinator to a fake replica: whole answers, and
// streams that come together as the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/message/tool_format.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kTools[] =
    R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
                   {"type": "function", "function": {"name": "g"}}])";
constexpr char kCallF[] =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"\xc3\xa9\"}}\n</tool_call>";
constexpr char kCallG[] = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

class ToolsServingTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    chat_template_ = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{% endif %}";
    options_.tool_format = FindToolFormat("hermes");
    options_.reasoning = ReasoningMarks{"<think>", "</think>"};
  }
  void Start() {
    StartCluster();
    worker_ = Join("replica-0", [this](const proto::StartSequence& start) { return Say(start); });
    WaitReady();
  }
  std::vector<proto::SequenceUpdate> Say(const proto::StartSequence& start) {
    if (start.decoding().kind() == "multinomial") {
      std::vector<proto::SequenceUpdate> updates = SayText(says_);
      if (breaks_off_) {
        updates.pop_back();
        updates.back().set_finished(true);
        *updates.back().add_hypotheses() = MakeHypothesis(Bytes(says_), -1.5, false);
        *updates.back().mutable_stats() = MakeStats();
      }
      return updates;
    }
    // Beams: the common beginning of two hypotheses becomes stable.
    std::vector<proto::SequenceUpdate> updates(2);
    for (const TokenId id : Bytes("<tool_call>\n{\"name\": \"")) updates[0].add_stable_tokens(id);
    updates[1].set_finished(true);
    *updates[1].add_hypotheses() = MakeHypothesis(Bytes(kCallF, true), -1, true);
    *updates[1].add_hypotheses() = MakeHypothesis(Bytes(kCallG, true), -2, true);
    *updates[1].mutable_stats() = MakeStats();
    return updates;
  }
  RawAnswer Send(const std::string& fields) {
    const std::string body = absl::StrCat(
        R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 300)", fields, "}");
    return Ask(absl::StrReplaceAll(Post(body), {{"/v1/completions", "/v1/chat/completions"}}));
  }
  json Answer(const std::string& fields) {
    const RawAnswer answer = Send(fields);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  // The choices of a stream, put together as its clients do.
  std::vector<json> Streamed(const std::string& fields) {
    const std::string body = Send(absl::StrCat(R"(, "stream": true)", fields)).body;
    std::map<int, json> choices;
    for (size_t at = 0; (at = body.find("data: {", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      const json event = json::parse(body.substr(at + 6, end - at - 6));
      at = end;
      EXPECT_FALSE(event.contains("error")) << event;
      for (const json& part : event.value("choices", json::array())) {
        json& choice = choices[part["index"]];
        if (choice.is_null()) choice["message"]["content"] = nullptr;
        json& message = choice["message"];
        if (part["finish_reason"].is_string()) choice["finish_reason"] = part["finish_reason"];
        for (const auto& item : part["delta"].items()) {
          if (item.key() == "tool_calls") {
            for (const json& call : item.value()) AddCall(call, &message);
          } else if (item.value().is_string()) {
            const std::string before =
                message.contains(item.key()) && message[item.key()].is_string()
                    ? message[item.key()].get<std::string>()
                    : "";
            message[item.key()] = before + item.value().get<std::string>();
          }
        }
      }
    }
    std::vector<json> list;
    for (auto& choice : choices) list.push_back(choice.second);
    return list;
  }
  static void AddCall(const json& delta, json* message) {
    const size_t index = delta["index"];
    json& calls = (*message)["tool_calls"];
    if (calls.is_null()) calls = json::array();
    ASSERT_LE(index, calls.size());
    if (index == calls.size()) {
      json call = delta;
      call.erase("index");
      calls.push_back(call);
    } else {
      EXPECT_FALSE(delta.contains("id") || delta["function"].contains("name")) << "said twice";
      calls[index]["function"]["arguments"] =
          calls[index]["function"]["arguments"].get<std::string>() +
          delta["function"]["arguments"].get<std::string>();
    }
  }
  // No text and no content are the same in a stream.
  static json AsWhole(json message) {
    if (message.contains("tool_calls") && message["content"] == "") message["content"] = nullptr;
    return message;
  }
  // Ids are random.
  static json WithoutIds(json message) {
    if (!message.contains("tool_calls")) return message;
    for (json& call : message["tool_calls"]) {
      EXPECT_THAT(call["id"].get<std::string>(), ::testing::StartsWith("call_"));
      call.erase("id");
    }
    return message;
  }
  void ExpectMessage(const std::string& fields, const json& message, const std::string& finish) {
    const json choice = Answer(fields)["choices"].at(0);
    EXPECT_EQ(WithoutIds(choice["message"]), message) << says_;
    EXPECT_EQ(choice["finish_reason"], finish) << says_;
    const std::vector<json> streamed = Streamed(fields);
    ASSERT_EQ(streamed.size(), 1u);
    EXPECT_EQ(WithoutIds(AsWhole(streamed[0]["message"])), message) << says_;
    EXPECT_EQ(streamed[0]["finish_reason"], finish) << says_;
  }
  static json Message(const json& content,
                      const std::vector<std::pair<std::string, std::string>>& calls,
                      const std::string& reasoning = "") {
    json message = {{"role", "assistant"}, {"content", content}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    for (const auto& [name, arguments] : calls) {
      message["tool_calls"].push_back(
          {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    }
    return message;
  }

  std::string says_;
  bool breaks_off_ = false;
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(ToolsServingTest, StreamsComeTogetherAsTheWholeAnswer) {
  Start();
  const std::string arguments = "{\"x\": \"\xc3\xa9\"}";
  const struct {
    std::string says;
    json message;
    const char* finish;
  } cases[] = {
      {"just text", Message("just text", {}), "stop"},
      {kCallF, Message(nullptr, {{"f", arguments}}), "tool_calls"},
      {absl::StrCat("So:\n", kCallF, "\n", kCallG), Message("So:", {{"f", arguments}, {"g", "{}"}}),
       "tool_calls"},
      {absl::StrCat("<think>\nhm\n</think>\n\nYes."), Message("Yes.", {}, "hm"), "stop"},
      {absl::StrCat("<think>\nhm\n</think>\n\n", kCallG), Message(nullptr, {{"g", "{}"}}, "hm"),
       "tool_calls"},
      {"<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>",
       Message("<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>", {}), "stop"},
  };
  for (const auto& one : cases) {
    says_ = one.says;
    ExpectMessage(kTools, one.message, one.finish);
  }
}

TEST_F(ToolsServingTest, ACallThatBreaksOffKeepsWhatCame) {
  Start();
  breaks_off_ = true;
  says_ = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, ";
  ExpectMessage(kTools, Message(nullptr, {{"f", "{\"x\": [1, "}}), "length");
  says_ = "<tool_call>\n{\"na";
  ExpectMessage(kTools, Message("<tool_call>\n{\"na", {}), "length");
  says_ = "<think>\nhm";
  ExpectMessage(kTools, Message("", {}, "hm"), "length");
}

TEST_F(ToolsServingTest, BeamsOfCallsHaveScores) {
  Start();
  const std::string fields = absl::StrCat(kTools, R"(, "use_beam_search": true, "n": 2)");
  const json choices = Answer(fields)["choices"];
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0]["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choices[1]["message"]["tool_calls"][0]["function"]["name"], "g");
  EXPECT_GT(choices[0]["score"], choices[1]["score"]);
  const std::vector<json> streamed = Streamed(fields);
  ASSERT_EQ(streamed.size(), 2u);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(WithoutIds(AsWhole(streamed[i]["message"])), WithoutIds(choices[i]["message"]));
}

// One token is one byte.
TEST_F(ToolsServingTest, TokensOfReasoningAreCounted) {
  Start();
  const auto count = [this](const std::string& says, const std::string& fields) {
    says_ = says;
    return Answer(fields)["usage"].value("completion_tokens_details", json());
  };
  const json none = {{"reasoning_tokens", 0}};
  EXPECT_EQ(count("Yes.", ""), none);
  EXPECT_EQ(count("<think>\nhm\n</think>\n\nYes.", ""), (json{{"reasoning_tokens", 19}}));
  EXPECT_EQ(count("<think>\nhm\n</think>\n\nYes.", R"(, "n": 2)"),
            (json{{"reasoning_tokens", 38}}));
  EXPECT_EQ(count("<think>a", ""), (json{{"reasoning_tokens", 9}})) << "with the end token";
  EXPECT_EQ(count("<think>a</think>", R"(, "separate_reasoning": false)"), json());
}

TEST_F(ToolsServingTest, ReasoningMayBeLeftOutOrInPlace) {
  Start();
  says_ = "<think>\nhm\n</think>\n\nYes.";
  ExpectMessage(R"(, "include_reasoning": false)", Message("Yes.", {}), "stop");
  ExpectMessage(R"(, "separate_reasoning": false)", Message(says_, {}), "stop");
  ExpectMessage(R"(, "reasoning_format": "none")", Message(says_, {}), "stop");
}

TEST_F(ToolsServingTest, WithoutToolsACallIsText) {
  Start();
  says_ = kCallG;
  ExpectMessage("", Message(kCallG, {}), "stop");
  ExpectMessage(absl::StrCat(kTools, R"(, "tool_choice": "none")"), Message(kCallG, {}), "stop");
}

}  // namespace
}  // namespace coppice::coordinator
