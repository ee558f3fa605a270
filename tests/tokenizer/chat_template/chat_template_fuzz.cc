// Any template and any text of a message: the engine ends within its limits. An input is a template,
// a byte 0, and the text. fuzz.sh runs it with libFuzzer; a normal test runs the seeds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using coppice::tokenizer::ChatTemplate;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const absl::StatusOr<ChatTemplate> parsed =
      ChatTemplate::Parse(coppice::tokenizer::ValidUtf8(input.substr(0, end)));
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  const std::string text = end == std::string::npos ? "text" : input.substr(end + 1);
  nlohmann::ordered_json variables;
  for (const char* role : {"system", "user", "assistant", "user"})
    variables["messages"].push_back({{"role", role}, {"content", text}});
  variables["messages"].push_back(
      {{"role", "assistant"}, {"content", {{{"type", "text"}, {"text", text}}}}});
  const nlohmann::ordered_json arguments = {{"a", text}, {"b", {1, 2.5, nullptr}}};
  variables["messages"].push_back(
      {{"role", "assistant"},
       {"tool_calls", {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}}}});
  variables["messages"].push_back({{"role", "tool"}, {"tool_call_id", "1"}, {"content", text}});
  variables["tools"] = {{{"type", "function"},
                         {"function", {{"name", "f"}, {"parameters", {{"a", {{"type", text}}}}}}}}};
  variables["documents"] = nullptr;
  variables["bos_token"] = "<s>";
  variables["eos_token"] = "</s>";
  variables["add_generation_prompt"] = true;
  coppice::tokenizer::ChatRenderLimits limits;
  limits.max_steps = 50'000;
  limits.max_bytes = 1 << 18;
  const absl::StatusOr<std::string> rendered = parsed->Render(variables, 0, limits);
  if (rendered.ok() && rendered->size() > static_cast<size_t>(limits.max_bytes)) std::abort();
  return 0;
}
