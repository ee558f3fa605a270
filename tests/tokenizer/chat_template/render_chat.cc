// Renders chat templates for differential.py. Each line of the standard input is {"template": text,
// "now": unix time, "variables": [object, ...]}. The answer to it is a line {"outcomes": [...]}, one
// for each object: {"text"}, {"raises"}: the template's own message, or {"fails"}: why not. {"refused"}
// instead of outcomes: the template does not start.
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/chat_template/chat_template.h"

int main() {
  using Json = nlohmann::ordered_json;
  using coppice::tokenizer::ChatTemplate;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    const absl::StatusOr<ChatTemplate> parsed =
        ChatTemplate::Parse(request["template"].get<std::string>());
    Json answer;
    if (!parsed.ok()) {
      answer["refused"] = std::string(parsed.status().message());
    } else {
      answer["outcomes"] = Json::array();
      for (const Json& variables : request["variables"]) {
        const auto text = parsed->Render(variables, request["now"].get<int64_t>());
        const bool raises = text.status().code() == absl::StatusCode::kFailedPrecondition;
        const char* kind = text.ok() ? "text" : raises ? "raises" : "fails";
        answer["outcomes"].push_back(
            {{kind, text.ok() ? *text : std::string(text.status().message())}});
      }
    }
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
