// Answers of /v1/responses and /v1/messages from hand-made choices: streams put together are the
// whole answer, and both are those of answer_forms.jsonl, which the official Python packages accept
// (tests/clients/with_openai.py, with_anthropic.py). COPPICE_WRITE_FORMS=1 writes that file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/request/answer_writer.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr char kFile[] = "tests/coordinator/request/answer_forms.jsonl";

struct Case {
  std::string name;
  Choice choice;
};

CallDelta Call(size_t index, const std::string& name, const std::string& arguments) {
  return {index, true, absl::StrCat("call_", index), name, arguments};
}

std::vector<Case> Cases() {
  Choice end;
  end.finish_reason = "stop";
  end.seed = 7;
  end.score = -0.5;
  end.joint_logprob = -1.5;
  std::vector<Case> cases;
  const auto add = [&](const char* name) -> Choice& {
    cases.push_back({name, end});
    return cases.back().choice;
  };
  add("text").text = "Once \"upon\"\na time, \xc3\xa9";
  add("nothing");
  Choice& cut = add("cut text");
  cut.text = "Once";
  cut.finish_reason = "length";
  Choice& stopped = add("stop string");
  stopped.text = "Once";
  stopped.stop_string = "upon";
  Choice& scored = add("scores");
  scored.text = "ab";
  const ShownToken a{"a", ""}, b{"b", ""};
  scored.logprobs = {{a, -0.25, {{b, -1.5}}, 0}, {b, -2.0, {}, 1}};
  Choice& reasoned = add("reasoning");
  reasoned.reasoning = "First, think.";
  reasoned.text = "Then speak.";
  Choice& only = add("only reasoning");
  only.reasoning = "Too long";
  only.finish_reason = "length";
  Choice& calls = add("calls");
  calls.reasoning = "Two tools.";
  calls.text = "I look.";
  calls.calls = {Call(0, "weather", R"({"city": "Bonn", "days": [1, 2]})"), Call(1, "time", "{}")};
  calls.finish_reason = "tool_calls";
  Choice& broken = add("broken call");
  broken.calls = {Call(0, "weather", R"({"city": "Bo)")};
  broken.finish_reason = "length";
  return cases;
}

// What events would bring: up to three bytes of text at a time, a token with its score.
std::vector<Choice> Pieces(const Choice& whole) {
  std::vector<Choice> pieces;
  const auto split = [](const std::string& text, auto add) {
    for (size_t at = 0; at < text.size();) {
      size_t size = std::min<size_t>(3, text.size() - at);
      while (at + size < text.size() && (text[at + size] & 0xc0) == 0x80) ++size;
      add(text.substr(at, size));
      at += size;
    }
  };
  const auto piece = [&]() -> Choice& { return pieces.emplace_back(); };
  split(whole.reasoning, [&](const std::string& text) { piece().reasoning = text; });
  if (whole.logprobs) {
    for (size_t i = 0; i < whole.text.size(); ++i) {
      piece().text = whole.text.substr(i, 1);
      pieces.back().logprobs = {(*whole.logprobs)[i]};
    }
  } else {
    split(whole.text, [&](const std::string& text) { piece().text = text; });
  }
  for (const CallDelta& call : whole.calls) {
    CallDelta head = call;
    head.arguments = "";
    piece().calls = {head};
    split(call.arguments, [&](const std::string& text) {
      piece().calls = {{call.index, false, "", "", text}};
    });
  }
  Choice end = whole;
  end.text = end.reasoning = "";
  end.calls.clear();
  end.logprobs.reset();
  pieces.push_back(end);
  return pieces;
}

Usage Tokens() {
  Usage usage;
  usage.prompt_tokens = 5;
  usage.completion_tokens = 4;
  usage.decoding.method = "gumbel_coupling";
  usage.decoding.cached_tokens = 2;
  return usage;
}

class AnswerForms : public ::testing::TestWithParam<AnswerForm> {
 protected:
  AnswerForms() {
    request_.form = GetParam();
    request_.prompts = {{1, 2, 3, 4, 5}};
    request_.repeated_fields =
        R"("instructions":null,"max_output_tokens":null,"metadata":{},"parallel_tool_calls":true,)"
        R"("reasoning":{"effort":null,"summary":null},"text":{"format":{"type":"text"}},"tools":[],)"
        R"("tool_choice":"auto","top_logprobs":0,"user":null,"background":false,)"
        R"("previous_response_id":null,"service_tier":"default","store":false,"truncation":"disabled")";
  }
  Json Whole(const Choice& choice) {
    Choice hidden = choice;
    hidden.text = hidden.reasoning = "";
    hidden.calls.clear();
    hidden.logprobs.reset();
    const auto show = [&](Choice* shown) { *shown = choice; };
    return Json::parse(
        MakeAnswerWriter(&request_)->Body(identity_, {hidden}, show, {}, Tokens(), std::nullopt));
  }
  AnswerWriter::Events Streamed(const std::vector<Choice>& pieces) {
    const auto writer = MakeAnswerWriter(&request_);
    AnswerWriter::Events all;
    const auto add = [&](const AnswerWriter::Events& events) {
      all.insert(all.end(), events.begin(), events.end());
    };
    for (const Choice& piece : pieces)
      add(writer->Delta(identity_, absl::MakeConstSpan(&piece, 1), std::nullopt, {}));
    add(writer->End(identity_, Tokens()));
    return all;
  }

  GenerateRequest request_;
  AnswerIdentity identity_{true, absl::StrCat(AnswerIdPrefix(GetParam()), "1f"), 1790000000, "demo",
                           "cop-1"};
};

// The output of a response from its events alone.
Json OutputOf(const std::vector<Json>& events) {
  Json output = Json::array();
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (!event.contains("output_index")) continue;
    const size_t index = event["output_index"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(output.size(), index);
      output.push_back(event["item"]);
      continue;
    }
    EXPECT_EQ(output.size(), index + 1) << "an event of an item that has ended";
    Json& item = output[index];
    EXPECT_EQ(event.value("item_id", item["id"]), item["id"]);
    if (type == "response.content_part.added") {
      item["content"].push_back(event["part"]);
    } else if (type == "response.function_call_arguments.delta") {
      item["arguments"] = item["arguments"].get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta") {
      Json& part = item["content"][0];
      part["text"] = part["text"].get<std::string>() + event["delta"].get<std::string>();
      for (const Json& token : event.value("logprobs", Json::array()))
        part["logprobs"].push_back(token);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(item["content"][0], event["part"]);
    } else if (type == "response.output_item.done") {
      item["status"] = event["item"]["status"];
      EXPECT_EQ(item, event["item"]);
    }
  }
  return output;
}

// A message from its events, as Anthropic's package puts it together. Only a call that broke off
// differs from the whole answer.
Json MessageOf(const std::vector<Json>& events) {
  Json message;
  std::string partial;
  bool open = false;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") {
      message = event["message"];
    } else if (type == "content_block_start") {
      EXPECT_FALSE(open);
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      open = true;
    } else if (type == "content_block_delta") {
      const Json& delta = event["delta"];
      EXPECT_EQ(event["index"].get<size_t>() + 1, message["content"].size());
      Json& block = message["content"].back();
      for (const char* member : {"text", "thinking"}) {
        if (delta.contains(member))
          block[member] = block[member].get<std::string>() + delta[member].get<std::string>();
      }
      if (delta.contains("partial_json")) partial += delta["partial_json"].get<std::string>();
    } else if (type == "content_block_stop") {
      open = false;
      if (!partial.empty()) {
        const Json input = Json::parse(partial, nullptr, false);
        message["content"].back()["input"] =
            input.is_discarded() ? Json{{"__unparsed", partial}} : input;
      }
      partial.clear();
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
      for (const auto& [name, value] : event.items()) {
        if (name != "type" && name != "delta" && name != "usage") message[name] = value;
      }
    }
  }
  EXPECT_FALSE(open);
  return message;
}

TEST_P(AnswerForms, StreamsAreTheWholeAnswer) {
  for (const Case& one : Cases()) {
    const Json whole = Whole(one.choice);
    for (const bool at_once : {false, true}) {
      const AnswerWriter::Events events =
          Streamed(at_once ? std::vector<Choice>{one.choice} : Pieces(one.choice));
      std::vector<Json> data;
      for (const StreamEvent& event : events) {
        EXPECT_EQ(event.data.find('\n'), std::string::npos);
        data.push_back(Json::parse(event.data));
        EXPECT_EQ(data.back()["type"], event.name);
      }
      if (GetParam() == AnswerForm::kResponse) {
        for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i]["sequence_number"], i);
        EXPECT_EQ(OutputOf(data), whole["output"]) << one.name;
        EXPECT_EQ(data.back()["response"], whole) << one.name;
        EXPECT_EQ(data.back()["type"],
                  absl::StrCat("response.", whole["status"].get<std::string>()));
        EXPECT_EQ(data[0]["response"]["status"], "in_progress");
        EXPECT_EQ(data[0]["response"]["output"], Json::array());
      } else {
        // The members in any order.
        EXPECT_EQ(nlohmann::json(MessageOf(data)), nlohmann::json(whole)) << one.name;
        EXPECT_EQ(data.back()["type"], "message_stop");
      }
    }
  }
}

TEST_P(AnswerForms, AreThoseOfTheFile) {
  std::vector<std::string> lines;
  for (const Case& one : Cases()) {
    Json line;
    line["form"] = GetParam() == AnswerForm::kResponse ? "response" : "message";
    line["case"] = one.name;
    line["whole"] = Whole(one.choice);
    for (const StreamEvent& event : Streamed(Pieces(one.choice)))
      line["events"].push_back(Json::parse(event.data));
    lines.push_back(line.dump());
  }
  std::vector<std::string> known, others;
  std::ifstream file(kFile);
  for (std::string line; std::getline(file, line);) {
    const bool own = Json::parse(line)["form"] == Json::parse(lines[0])["form"];
    (own ? known : others).push_back(line);
  }
  if (std::getenv("COPPICE_WRITE_FORMS") != nullptr) {
    std::ofstream written(kFile);
    for (const std::string& line : others) written << line << "\n";
    for (const std::string& line : lines) written << line << "\n";
    return;
  }
  EXPECT_EQ(known, lines);
}

TEST_P(AnswerForms, ErrorsHaveTheirForm) {
  const ApiError error{503, "replica_lost", "replica-0 is gone", "", 1};
  const bool response = GetParam() == AnswerForm::kResponse;
  const auto begun = MakeAnswerWriter(&request_), not_begun = MakeAnswerWriter(&request_);
  Choice piece;
  piece.text = "Once";
  (void)begun->Delta(identity_, absl::MakeConstSpan(&piece, 1), std::nullopt, {});
  const AnswerWriter::Events late = begun->Error(identity_, error);
  const AnswerWriter::Events early = not_begun->Error(identity_, error);
  ASSERT_EQ(late.size(), 1u);
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].name, "error");
  EXPECT_EQ(late[0].name, response ? "response.failed" : "error");
  const Json told = Json::parse(late[0].data), at_once = Json::parse(early[0].data);
  if (response) {
    EXPECT_EQ(told["response"]["status"], "failed");
    EXPECT_EQ(told["response"]["error"]["code"], "server_error");
    EXPECT_EQ(told["response"]["error"]["message"], "replica_lost: replica-0 is gone");
    EXPECT_EQ(told["response"]["output"][0]["status"], "incomplete");
    EXPECT_EQ(told["response"]["output"][0]["content"][0]["text"], "Once");
    EXPECT_EQ(at_once["code"], "replica_lost");
    EXPECT_EQ(at_once["sequence_number"], 0);
  } else {
    EXPECT_EQ(told, at_once);
    EXPECT_EQ(told["type"], "error");
    EXPECT_EQ(told["error"]["type"], "overloaded_error");
    EXPECT_EQ(told["error"]["code"], "replica_lost");
  }
}

// One event may bring the end of a call and text behind it.
TEST_P(AnswerForms, ACallEndsBeforeTheTextBehindIt) {
  std::vector<Choice> pieces(3);
  pieces[0].calls = {Call(0, "weather", R"({"city")")};
  pieces[1].calls = {{0, false, "", "", R"(: 1})"}};
  pieces[1].text = "Done.";
  pieces[2].finish_reason = "stop";
  std::vector<Json> events;
  for (const auto& event : Streamed(pieces)) events.push_back(Json::parse(event.data));
  if (GetParam() == AnswerForm::kResponse) {
    const Json output = OutputOf(events);
    ASSERT_EQ(output.size(), 2u) << output;
    EXPECT_EQ(output[0]["arguments"], R"({"city": 1})");
    EXPECT_EQ(output[1]["content"][0]["text"], "Done.");
  } else {
    const Json content = MessageOf(events)["content"];
    ASSERT_EQ(content.size(), 2u) << content;
    EXPECT_EQ(content[0]["input"], Json({{"city", 1}}));
    EXPECT_EQ(content[1]["text"], "Done.");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, AnswerForms,
                         ::testing::Values(AnswerForm::kResponse, AnswerForm::kMessage));

}  // namespace
}  // namespace coppice::coordinator
