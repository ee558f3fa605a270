#include "coordinator/message/tools_as_text.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using ShownJson = nlohmann::ordered_json;

std::string Dumped(const ShownJson& json) {
  return json.dump(-1, ' ', false, ShownJson::error_handler_t::replace);
}

std::string ContentText(const ShownJson& message) {
  const ShownJson content = message.value("content", ShownJson());
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const ShownJson& part : content) {
    if (!part.is_object()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n", part.value("text", ""));
  }
  return text;
}

std::string Description(const ShownJson& tools) {
  std::string text =
      "You can call functions to help with the user's request. These are their signatures, between "
      "<tools> and </tools>:\n<tools>\n";
  for (const ShownJson& tool : tools) absl::StrAppend(&text, Dumped(tool), "\n");
  absl::StrAppend(
      &text,
      "</tools>\nTo call a function, write a JSON object with its name and arguments between "
      "<tool_call> and </tool_call>:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
      "<arguments-object>}\n</tool_call>");
  return text;
}

ShownJson TextMessage(const char* role, std::string text) {
  ShownJson message;
  message["role"] = role;
  message["content"] = std::move(text);
  return message;
}

std::string WithCalls(const ShownJson& message) {
  std::string text = ContentText(message);
  for (const ShownJson& call : message["tool_calls"]) {
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    "<tool_call>\n{\"name\": ", Dumped(call["function"]["name"]),
                    ", \"arguments\": ", Dumped(call["function"]["arguments"]), "}\n</tool_call>");
  }
  return text;
}

}  // namespace

ShownJson ToolsAsText(const ShownJson& messages, const ShownJson& tools) {
  ShownJson made = ShownJson::array();
  std::string system = tools.is_null() ? "" : Description(tools);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ShownJson& message = messages[i];
    const std::string role = message.value("role", "");
    if (i == 0 && (role == "system" || role == "developer") && !system.empty()) {
      ShownJson first = message;
      first["content"] = absl::StrCat(ContentText(message), "\n\n", std::exchange(system, ""));
      made.push_back(std::move(first));
      continue;
    }
    if (!system.empty()) made.push_back(TextMessage("system", std::exchange(system, "")));
    if (role == "tool") {
      std::string text =
          absl::StrCat("<tool_response>\n", ContentText(message), "\n</tool_response>");
      const bool joins = i > 0 && messages[i - 1].value("role", "") == "tool";
      if (joins)
        absl::StrAppend(&made.back()["content"].get_ref<std::string&>(), "\n", text);
      else
        made.push_back(TextMessage("user", std::move(text)));
    } else if (message.contains("tool_calls")) {
      made.push_back(TextMessage("assistant", WithCalls(message)));
    } else {
      made.push_back(message);
    }
  }
  return made;
}

}  // namespace coppice::coordinator
