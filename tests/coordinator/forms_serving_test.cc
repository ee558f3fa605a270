// /v1/responses, /v1/messages and what belongs to them, through a whole coordinator to a fake replica.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/message/tool_format.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A sample repeats the prompt; beams are "best" and "beast".
std::vector<proto::SequenceUpdate> Repeat(const proto::StartSequence& start) {
  if (start.decoding().kind() == "multinomial") {
    std::string prompt;
    for (const TokenId id : start.prompt()) prompt += ByteTokenizer().TokenBytes(id, true);
    return SayUpToStop(prompt, start);
  }
  std::vector<proto::SequenceUpdate> updates(2);
  updates[0].add_stable_tokens('b');
  updates[1].set_finished(true);
  *updates[1].add_hypotheses() = MakeHypothesis(Bytes("best", true), -1, true);
  *updates[1].mutable_stats() = MakeStats();
  return updates;
}

std::string PostTo(const std::string& path, const std::string& body,
                   const std::string& headers = "") {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n",
                      headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
}

class FormsServingTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    chat_template_ = "{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]{% endfor %}";
    options_.tokenizer_info = R"({"tokenizer_class":"Bytes"})";
  }
  void Begin() {
    StartCluster();
    worker_ = Join("replica-0", Repeat);
    WaitReady();
  }
  RawAnswer Send(const std::string& path, const std::string& fields) {
    const bool response = path == "/v1/responses";
    return Ask(PostTo(
        path,
        absl::StrCat(response
                         ? R"({"input": "hi", "max_output_tokens": 40)"
                         : R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40)",
                     fields, "}")));
  }
  json Answer(const std::string& path, const std::string& fields) {
    const RawAnswer answer = Send(path, fields);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  // The events of a stream. Each has its name in a line before its data.
  std::vector<json> Events(const std::string& path, const std::string& fields) {
    const RawAnswer answer = Send(path, absl::StrCat(R"(, "stream": true)", fields));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("text/event-stream"));
    std::vector<json> events;
    for (const absl::string_view text : absl::StrSplit(answer.body, "\n\n", absl::SkipEmpty())) {
      const std::vector<std::string> lines = absl::StrSplit(text, '\n');
      EXPECT_EQ(lines.size(), 2u) << text;
      if (lines.size() != 2) continue;
      EXPECT_THAT(lines[1], StartsWith("data: "));
      events.push_back(json::parse(lines[1].substr(6)));
      EXPECT_EQ(lines[0], absl::StrCat("event: ", events.back()["type"].get<std::string>()));
    }
    return events;
  }
  std::unique_ptr<FakeWorker> worker_;
};

// What differs from run to run.
json Steady(json answer) {
  for (const char* name : {"id", "created_at", "timings"}) answer.erase(name);
  if (answer.contains("output")) {
    for (json& item : answer["output"]) item.erase("id");
  }
  return answer;
}

TEST_F(FormsServingTest, ResponsesWholeAndStreamed) {
  Begin();
  for (const char* fields :
       {R"(, "seed": 1)", R"(, "seed": 1, "instructions": "x\ny", "stop": "i]")",
        R"(, "seed": 1, "use_beam_search": true)"}) {
    const json answer = Answer("/v1/responses", fields);
    EXPECT_EQ(answer["object"], "response");
    EXPECT_THAT(answer["id"].get<std::string>(), StartsWith("resp_"));
    EXPECT_EQ(answer["status"], "completed") << answer;
    ASSERT_EQ(answer["output"].size(), 1u);
    const std::string text = answer["output"][0]["content"][0]["text"];
    EXPECT_EQ(text, absl::StrContains(fields, "beam")   ? "best"
                    : absl::StrContains(fields, "stop") ? "[s:x\ny][u:h"
                                                        : "[u:hi]");
    const std::vector<json> events = Events("/v1/responses", fields);
    ASSERT_GT(events.size(), 4u);
    std::string streamed;
    for (const json& event : events) {
      if (event["type"] == "response.output_text.delta") streamed += event["delta"];
    }
    EXPECT_EQ(streamed, text);
    EXPECT_EQ(events[0]["type"], "response.created");
    EXPECT_EQ(events.back()["type"], "response.completed");
    EXPECT_EQ(Steady(events.back()["response"]), Steady(answer));
  }
  EXPECT_EQ(
      Metric("coppice_http_requests_total{handler=\"responses\",method=\"POST\",status=\"2xx\"}"),
      6);
}

TEST_F(FormsServingTest, MessagesWholeAndStreamed) {
  Begin();
  for (const char* fields :
       {R"(, "seed": 1)", R"(, "seed": 1, "system": "x", "stop_sequences": ["i]"])",
        R"(, "seed": 1, "use_beam_search": true)"}) {
    const json answer = Answer("/v1/messages", fields);
    EXPECT_EQ(answer["type"], "message");
    EXPECT_THAT(answer["id"].get<std::string>(), StartsWith("msg_"));
    const bool stopped = absl::StrContains(fields, "stop");
    EXPECT_EQ(answer["stop_reason"], stopped ? "stop_sequence" : "end_turn");
    EXPECT_EQ(answer["stop_sequence"], stopped ? json("i]") : json());
    const std::vector<json> events = Events("/v1/messages", fields);
    ASSERT_GT(events.size(), 5u);
    std::string streamed;
    for (const json& event : events) {
      if (event["type"] == "content_block_delta") streamed += event["delta"]["text"];
      if (event["type"] == "message_delta") {
        EXPECT_EQ(event["delta"]["stop_reason"], answer["stop_reason"]);
        EXPECT_EQ(event["usage"], answer["usage"]);
      }
    }
    EXPECT_EQ(json::array({{{"type", "text"}, {"text", streamed}}}), answer["content"]);
    EXPECT_EQ(events[0]["type"], "message_start");
    EXPECT_EQ(events.back()["type"], "message_stop");
  }
}

TEST_F(FormsServingTest, ErrorsHaveTheFormOfTheirEndpoint) {
  Begin();
  const json response = json::parse(Send("/v1/responses", R"(, "background": true)").body);
  EXPECT_EQ(response["error"]["param"], "background");
  const auto message = [&](const RawAnswer& answer, int status, const char* type,
                           const char* code) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json body = json::parse(answer.body, nullptr, false);
    EXPECT_EQ(body.value("type", ""), "error") << answer.body;
    EXPECT_EQ(body["error"]["type"], type);
    EXPECT_EQ(body["error"]["code"], code);
  };
  message(Send("/v1/messages", R"(, "n": 2)"), 400, "invalid_request_error", "unsupported_field");
  message(Send("/v1/messages", R"(, "model": "claude")"), 404, "not_found_error",
          "model_not_found");
  message(Ask(Get("/v1/messages")), 405, "invalid_request_error", "method_not_allowed");
  message(Ask(PostTo("/v1/messages/count_tokens", "[]")), 400, "invalid_request_error",
          "invalid_json");
  message(Ask(PostTo("/v1/messages", std::string(70000, ' '))), 413, "request_too_large",
          "body_too_large");
  // A large body is read by another thread.
  message(
      Ask(PostTo(
          "/v1/messages",
          absl::StrCat(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}], "a": ")",
                       std::string(20000, 'a'), "\"}"))),
      400, "invalid_request_error", "unsupported_field");
  // Found when the model is known.
  const json late = json::parse(Send("/v1/responses", R"(, "max_output_tokens": 100000)").body);
  EXPECT_EQ(late["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(late["error"]["param"], "max_output_tokens");
}

TEST_F(FormsServingTest, KeysAndRatesCount) {
  const std::string keys = ::testing::TempDir() + "/forms_keys";
  std::ofstream(keys) << "first-key-0123456789 one\n";
  options_.api_keys_file = keys;
  options_.max_requests_per_minute = 2;
  StartCluster();
  const auto worker = Join("replica-0", Repeat);
  WaitReady();
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}]})";
  const auto ask = [&](const std::string& headers) {
    return Ask(PostTo("/v1/messages", body, headers));
  };
  const RawAnswer missing = ask("");
  EXPECT_EQ(missing.status, 401);
  EXPECT_EQ(json::parse(missing.body)["error"]["type"], "authentication_error");
  EXPECT_EQ(ask("X-Api-Key: wrong-key-0123456789\r\n").status, 401);
  EXPECT_EQ(ask("x-api-key: first-key-0123456789\r\nanthropic-version: 2023-06-01\r\n").status,
            200);
  EXPECT_EQ(ask("Authorization: Bearer first-key-0123456789\r\n").status, 200);
  const RawAnswer late = ask("x-api-key: first-key-0123456789\r\n");
  EXPECT_EQ(late.status, 429);
  EXPECT_EQ(json::parse(late.body)["error"]["type"], "rate_limit_error");
  EXPECT_THAT(late.head, HasSubstr("Retry-After"));
}

TEST_F(FormsServingTest, TokensAreCountedAndTheTokenizerDescribed) {
  Begin();
  EXPECT_EQ(json::parse(Ask(PostTo("/v1/messages/count_tokens",
                                   R"({"messages": [{"role": "user", "content": "hi"}]})"))
                            .body),
            json({{"input_tokens", 6}}));
  const RawAnswer info = Ask(Get("/tokenizer_info"));
  EXPECT_EQ(info.status, 200);
  EXPECT_EQ(json::parse(info.body), json({{"tokenizer_class", "Bytes"}}));
}

TEST_F(FormsServingTest, AClientThatGoesIsForgotten) {
  StartCluster();
  const auto worker = Join("replica-0", [](const proto::StartSequence&) {
    std::vector<proto::SequenceUpdate> updates(1);
    updates[0].add_stable_tokens('a');
    return updates;  // and never ends
  });
  WaitReady();
  RawClient client(port());
  client.Send(PostTo("/v1/responses", R"({"input": "hi", "stream": true})"));
  EXPECT_NE(client.ReadUntil("response.output_text.delta"), "");
  client.Close();
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 1; }));
}

// Reasoning, a text and a call, as the model writes them.
class FormsOfCallsTest : public FormsServingTest {
 protected:
  void SetUp() override {
    FormsServingTest::SetUp();
    chat_template_ = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}";
    options_.tool_format = FindToolFormat("hermes");
    options_.reasoning = ReasoningMarks{"<think>", "</think>"};
    StartCluster();
    worker_ = Join("replica-0", [](const proto::StartSequence&) {
      return SayText(
          "<think>hm</think>I look.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, "
          "\"\xc3\xa9\"]}}\n</tool_call>");
    });
    WaitReady();
  }
};

TEST_F(FormsOfCallsTest, OfResponses) {
  const char* fields = R"(, "seed": 1, "max_output_tokens": 300, "tools": [{"type": "function",
      "name": "f", "parameters": {"type": "object"}}])";
  const json answer = Answer("/v1/responses", fields);
  ASSERT_EQ(answer["output"].size(), 3u) << answer;
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "I look.");
  const json& call = answer["output"][2];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(json::parse(call["arguments"].get<std::string>())["x"], json({1, "\xc3\xa9"}));
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["tools"][0]["name"], "f");
  const std::vector<json> events = Events("/v1/responses", fields);
  std::string arguments;
  for (const json& event : events) {
    if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"];
  }
  EXPECT_EQ(arguments, call["arguments"]);
  json streamed = Steady(events.back()["response"]), whole = Steady(answer);
  for (json* one : {&streamed, &whole}) (*one)["output"][2].erase("call_id");
  EXPECT_EQ(streamed, whole);
}

TEST_F(FormsOfCallsTest, OfMessages) {
  const char* fields = R"(, "seed": 1, "max_tokens": 300, "tools": [{"name": "f", "input_schema":
      {"type": "object"}}])";
  const json answer = Answer("/v1/messages", fields);
  EXPECT_EQ(answer["stop_reason"], "tool_use") << answer;
  ASSERT_EQ(answer["content"].size(), 3u);
  EXPECT_EQ(answer["content"][0]["thinking"], "hm");
  EXPECT_EQ(answer["content"][1]["text"], "I look.");
  EXPECT_EQ(answer["content"][2]["name"], "f");
  EXPECT_EQ(answer["content"][2]["input"], json({{"x", {1, "\xc3\xa9"}}}));
  std::string input;
  for (const json& event : Events("/v1/messages", fields)) {
    if (event["type"] == "content_block_delta") input += event["delta"].value("partial_json", "");
  }
  EXPECT_EQ(json::parse(input), answer["content"][2]["input"]);
}

TEST_F(FormsOfCallsTest, ErrorsNameTheToolsOfTheClient) {
  const auto param = [&](const char* path, const char* fields) {
    return json::parse(Send(path, fields).body)["error"]["param"];
  };
  EXPECT_EQ(param("/v1/responses", R"(, "tools": [{"type": "function", "name": "a b"}])"),
            "tools[0].name");
  EXPECT_EQ(param("/v1/messages", R"(, "tools": [{"name": "f", "input_schema": 5}])"),
            "tools[0].input_schema");
  EXPECT_EQ(param("/v1/responses", R"(, "tools": [{"type": "function", "name": "f"}], "tool_choice":
                {"type": "function", "name": "g"})"),
            "tool_choice");
}

}  // namespace
}  // namespace coppice::coordinator
