#include "coordinator/message/tool_format.h"

#include <algorithm>

namespace coppice::coordinator {
namespace {

std::vector<ToolFormat> MakeFormats() {
  std::vector<ToolFormat> formats;
  // XML. These rows stand before those whose marks they share.
  formats.push_back({.name = "glm",
                     .kind = CallKind::kXml,
                     .known_by = {{"<tool_call>", "<arg_key>"}},
                     .sections = {{"", ""}},
                     .call_open = "<tool_call>",
                     .call_close = "</tool_call>",
                     .between = "\n",
                     .loose = true,
                     .name_end = "\n",
                     .argument_open = "<arg_key>",
                     .key_end = "</arg_key>\n<arg_value>",
                     .argument_close = "</arg_value>\n",
                     .specials = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                                  "<arg_value>", "</arg_value>"}});
  formats.push_back({.name = "qwen3_coder",
                     .kind = CallKind::kXml,
                     .known_by = {{"<tool_call>", "<function=", "<parameter="}},
                     .sections = {{"", ""}},
                     .call_open = "<tool_call>\n<function=",
                     .call_close = "</function>\n</tool_call>",
                     .between = "\n",
                     .name_end = ">\n",
                     .argument_open = "<parameter=",
                     .key_end = ">\n",
                     .argument_close = "\n</parameter>\n",
                     .specials = {"<tool_call>", "</tool_call>"}});
  formats.push_back({.name = "seed_oss",
                     .kind = CallKind::kXml,
                     .known_by = {{"<seed:tool_call>", "<function="}},
                     .sections = {{"", ""}},
                     .call_open = "<seed:tool_call>\n<function=",
                     .call_close = "</function>\n</seed:tool_call>",
                     .between = "\n",
                     .name_end = ">\n",
                     .argument_open = "<parameter=",
                     .key_end = ">",
                     .argument_close = "</parameter>\n",
                     .specials = {"<seed:tool_call>", "</seed:tool_call>"}});
  formats.push_back({.name = "minimax_m2",
                     .kind = CallKind::kXml,
                     .known_by = {{"<minimax:tool_call>", "<invoke name="}},
                     .sections = {{"<minimax:tool_call>\n", "\n</minimax:tool_call>"}},
                     .call_open = "<invoke name=\"",
                     .call_close = "</invoke>",
                     .between = "\n",
                     .name_end = "\">\n",
                     .argument_open = "<parameter name=\"",
                     .key_end = "\">",
                     .argument_close = "</parameter>\n",
                     .specials = {"<minimax:tool_call>", "</minimax:tool_call>"}});

  // The name, and then the arguments as JSON.
  formats.push_back({.name = "functionary_v3.1",
                     .kind = CallKind::kNamedJson,
                     .known_by = {{"<function="}, {"<{start_tag}={function_name}>"}},
                     .sections = {{"", ""}},
                     .call_open = "<function=",
                     .call_close = "</function>",
                     .name_end = ">",
                     .specials = {"<|python_tag|>"}});
  // The prompt ends with ">>>", so an answer begins with a name.
  formats.push_back({.name = "functionary_v3.2",
                     .kind = CallKind::kNamedJson,
                     .known_by = {{">>>all"}},
                     .sections = {{"", "", false}, {">>>", ""}},
                     .between = ">>>",
                     .name_end = "\n",
                     .content_mark = "all\n"});
  const std::vector<std::string> deepseek = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>",
                                             "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                             "<｜tool▁calls▁end｜>"};
  formats.push_back({.name = "deepseek_v3",
                     .kind = CallKind::kNamedJson,
                     .known_by = {{"<｜tool▁sep｜>", "```json"}},
                     .sections = {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}},
                     .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                     .call_close = "\n```<｜tool▁call▁end｜>",
                     .between = "\n",
                     .name_end = "\n```json\n",
                     .specials = deepseek});
  formats.push_back({.name = "deepseek_v31",
                     .kind = CallKind::kNamedJson,
                     .known_by = {{"<｜tool▁sep｜>"}},
                     .sections = {{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}},
                     .call_open = "<｜tool▁call▁begin｜>",
                     .call_close = "<｜tool▁call▁end｜>",
                     .name_end = "<｜tool▁sep｜>",
                     .specials = deepseek});
  formats.push_back(
      {.name = "kimi_k2",
       .kind = CallKind::kNamedJson,
       .known_by = {{"<|tool_call_argument_begin|>"}},
       .sections = {{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}},
       .call_open = "<|tool_call_begin|>functions.",
       .call_close = "<|tool_call_end|>",
       .name_end = "<|tool_call_argument_begin|>",
       .name_note = ":",
       .ids = CallIds::kNamed,
       .specials = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                    "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"}});
  formats.push_back({.name = "mistral_v11",
                     .kind = CallKind::kNamedJson,
                     .known_by = {{"[TOOL_CALLS]", "[ARGS]"}},
                     .sections = {{"", ""}},
                     .call_open = "[TOOL_CALLS]",
                     .name_end = "[ARGS]",
                     .name_note = "[CALL_ID]",
                     .ids = CallIds::kNine,
                     .specials = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}});

  // Python.
  formats.push_back({.name = "minicpm3",
                     .kind = CallKind::kPythonic,
                     .known_by = {{"<|tool_call_start|>", "```python"}},
                     .sections = {{"<|tool_call_start|>\n```python\n", "\n```\n<|tool_call_end|>"}},
                     .between = "\n",
                     .specials = {"<|tool_call_start|>", "<|tool_call_end|>"}});
  formats.push_back({.name = "lfm2",
                     .kind = CallKind::kPythonic,
                     .known_by = {{"<|tool_call_start|>"}},
                     .sections = {{"<|tool_call_start|>", "<|tool_call_end|>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<|tool_call_start|>", "<|tool_call_end|>"}});
  formats.push_back({.name = "olmo3",
                     .kind = CallKind::kPythonic,
                     .known_by = {{"<function_calls>"}},
                     .sections = {{"<function_calls>", "</function_calls>"}},
                     .between = "\n"});
  formats.push_back({.name = "pythonic",
                     .kind = CallKind::kPythonic,
                     .known_by = {{"[func_name1("}},
                     .sections = {{"", "", false}, {"<|python_start|>", "<|python_end|>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<|python_start|>", "<|python_end|>"}});

  // JSON with the name in it.
  formats.push_back({.name = "mistral",
                     .known_by = {{"[TOOL_CALLS]"}},
                     .sections = {{"[TOOL_CALLS] ", ""}},
                     .list = true,
                     .between = ", ",
                     .loose = true,
                     .ids = CallIds::kNine,
                     .specials = {"[TOOL_CALLS]"}});
  formats.push_back({.name = "llama3_json",
                     .known_by = {{"<|python_tag|>"}, {"\"parameters\": dictionary"}},
                     .sections = {{"", "", false}, {"<|python_tag|>", ""}},
                     .between = "; ",
                     .key = "parameters",
                     .specials = {"<|python_tag|>"}});
  formats.push_back({.name = "phi4_mini",
                     .known_by = {{"<|tool_call|>", "<|/tool_call|>"}},
                     .sections = {{"<|tool_call|>", "<|/tool_call|>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<|tool_call|>", "<|/tool_call|>"}});
  formats.push_back({.name = "granite",
                     .known_by = {{"<|tool_call|>"}},
                     .sections = {{"<|tool_call|>", ""}, {"<tool_call>", ""}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<|tool_call|>", "<tool_call>"}});
  formats.push_back({.name = "functools",
                     .known_by = {{"functools["}},
                     .sections = {{"functools", ""}},
                     .list = true,
                     .between = ", "});
  formats.push_back({.name = "nemotron",
                     .known_by = {{"<TOOLCALL>"}},
                     .sections = {{"<TOOLCALL>", "</TOOLCALL>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<TOOLCALL>", "</TOOLCALL>"}});
  formats.push_back({.name = "tool_calls",
                     .known_by = {{"<tool_calls>["}},
                     .sections = {{"<tool_calls>", "</tool_calls>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<tool_calls>", "</tool_calls>"}});
  formats.push_back({.name = "smollm2",
                     .known_by = {{"<tool_call>["}},
                     .sections = {{"<tool_call>", "</tool_call>"}},
                     .list = true,
                     .between = ", ",
                     .specials = {"<tool_call>", "</tool_call>"}});
  formats.push_back({.name = "hermes",
                     .known_by = {{"<tool_call>"}},
                     .sections = {{"", ""}},
                     .call_open = "<tool_call>\n",
                     .call_close = "\n</tool_call>",
                     .between = "\n",
                     .loose = true,
                     .specials = {"<tool_call>", "</tool_call>"}});
  return formats;
}

}  // namespace

absl::Span<const ToolFormat> ToolFormats() {
  static const std::vector<ToolFormat> formats = MakeFormats();
  return formats;
}

const ToolFormat* FindToolFormat(absl::string_view name) {
  for (const ToolFormat& format : ToolFormats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

const ToolFormat* DetectToolFormat(absl::FunctionRef<bool(absl::string_view)> mentions) {
  const ToolFormat* const hermes = FindToolFormat("hermes");
  for (const ToolFormat& format : ToolFormats()) {
    for (const std::vector<std::string>& texts : format.known_by) {
      if (!std::all_of(texts.begin(), texts.end(), mentions)) continue;
      // MiniMax-M3 has the marks of hermes around calls of its own.
      return &format == hermes && mentions("<invoke name=") ? nullptr : &format;
    }
  }
  return mentions("tool_call") ? nullptr : hermes;
}

}  // namespace coppice::coordinator
