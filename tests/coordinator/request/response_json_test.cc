// Events and answers are written as text. It is what a JSON library would write.
#include "coordinator/request/response_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

AnswerIdentity Identity(bool chat) { return {chat, "id-1", 1700000000, "a \"model\"", "cop-1"}; }

// Choices with and without each of their parts.
std::vector<Choice> Choices() {
  std::vector<Choice> choices;
  for (const char* text : {"", "word", "\"quoted\"\n\\", "\xc3\xa9\x7f\x01"}) {
    for (int parts = 0; parts < 64; ++parts) {
      Choice choice;
      choice.index = parts;
      choice.text = text;
      choice.first = (parts & 1) != 0;
      if (parts & 2) choice.reasoning = "because\n";
      if (parts & 4) choice.calls = {{0, true, "call-1", "f", "{\"a\":"}, {1, false, "", "", "1}"}};
      if (parts & 8) choice.finish_reason = "stop";
      if (parts & 16) choice.stop_string = "\n\n";
      if (parts & 32) choice.stop_token = 7;
      choice.seed = -3;
      choice.score = parts & 1 ? std::optional<double>(-0.25) : std::nullopt;
      choice.joint_logprob = -1.0 / 3;
      choices.push_back(choice);
    }
  }
  return choices;
}

std::string Dumped(const std::string& text) {
  return Json::parse(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

TEST(ResponseJson, EventsAreWhatADumpWrites) {
  for (const bool chat : {false, true}) {
    const std::string head = EventHead(Identity(chat));
    for (const Choice& choice : Choices()) {
      for (const EventUsage& usage :
           {EventUsage{}, EventUsage{true, {}, {}}, EventUsage{true, 5, 9}}) {
        const std::string event =
            CompletionEvent(head, chat, absl::MakeConstSpan(&choice, 1), 0.5, usage);
        EXPECT_EQ(event, Dumped(event));
      }
    }
  }
}

TEST(ResponseJson, AnEventHasTheMembersOfItsChoice) {
  Choice choice;
  choice.index = 2;
  choice.text = "word";
  choice.first = false;
  const EventUsage usage{true, 5, 9};
  EXPECT_EQ(CompletionEvent(EventHead(Identity(/*chat=*/true)), /*chat=*/true,
                            absl::MakeConstSpan(&choice, 1), std::nullopt, usage),
            R"({"id":"id-1","object":"chat.completion.chunk","created":1700000000,)"
            R"("model":"a \"model\"","system_fingerprint":"cop-1","choices":[{"index":2,)"
            R"("delta":{"content":"word"},"finish_reason":null,"stop_reason":null,)"
            R"("logprobs":null}],"usage":{"prompt_tokens":5,"completion_tokens":9,)"
            R"("total_tokens":14}})");
}

TEST(ResponseJson, AnswersAreWhatADumpWrites) {
  for (const bool chat : {false, true}) {
    const std::string answer = CompletionBody(
        Identity(chat), Choices(), [](Choice*) {}, {0.5}, Usage(), std::nullopt);
    EXPECT_EQ(answer, Dumped(answer));
  }
}

}  // namespace
}  // namespace coppice::coordinator
