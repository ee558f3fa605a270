// POST /v1/messages as a chat completion.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"
#include "coordinator/api/messages_input.h"
#include "coordinator/api/translation.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

void ReadMessagesTool(const json& tool, absl::string_view text, const std::string& path,
                      Translator* translator) {
  JsonFields& fields = translator->fields();
  if (!tool.is_object()) return fields.Fail("invalid_type", path, "must be an object");
  JsonFields inner(tool, path, fields.ignored());
  const std::string type = inner.String({"type"}).value_or("custom");
  if (type != "custom") {
    inner.Fail("unsupported_field", "type",
               absl::StrCat("is ", PrintableName(type),
                            ", which is not supported: only tools that the client calls are"));
  }
  ObjectText function;
  for (const auto& [name, value] : MemberTexts(text)) {
    if (name == "name" || name == "description" || name == "strict") function.AddText(name, value);
    if (name == "input_schema") function.AddText("parameters", value);
  }
  for (const char* name : {"name", "description", "input_schema", "strict"}) inner.Find({name});
  for (const char* name : {"cache_control", "defer_loading", "allowed_callers", "input_examples",
                           "eager_input_streaming"})
    inner.Hint(name, json::array());
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  translator->AddTool(function, path, "input_schema");
}

void ReadMessagesToolChoice(Translator* translator) {
  constexpr char kName[] = "tool_choice";
  JsonFields& fields = translator->fields();
  const json* choice = fields.Object(kName);
  if (choice == nullptr) return;
  JsonFields inner(*choice, kName, fields.ignored());
  const std::string type = inner.String({"type"}).value_or("");
  const std::string name = inner.String({"name"}).value_or("");
  const std::optional<bool> alone = inner.Bool({"disable_parallel_tool_use"});
  if (type == "tool" && name.empty()) inner.Fail("missing_field", "name", "is required");
  if (type != "auto" && type != "any" && type != "tool" && type != "none")
    inner.Fail("invalid_value", "type", "must be one of auto, any, tool, none");
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  if (type == "tool") {
    ObjectText function;
    function.Add("name", name);
    translator->Place("tool_choice.function", kName);
    translator->Set(
        kName, ObjectText().Add("type", "function").AddText("function", function.text()).text(),
        kName);
  } else {
    translator->Set(kName, QuotedText(type == "any" ? "required" : type), kName);
  }
  if (alone.value_or(false))
    translator->Set("parallel_tool_calls", "false", "tool_choice.disable_parallel_tool_use");
}

void ReadThinking(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* thinking = fields.Object("thinking");
  if (thinking == nullptr) return;
  JsonFields inner(*thinking, "thinking", fields.ignored());
  const std::string type = inner.String({"type"}).value_or("");
  for (const char* hint : {"budget_tokens", "display"}) inner.Hint(hint, json::array());
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    inner.Fail("invalid_value", "type", "must be one of enabled, disabled, adaptive");
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  if (type != "adaptive") translator->SetVariable("enable_thinking", type == "enabled", "thinking");
}

void ReadOutputConfig(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* config = fields.Object("output_config");
  if (config == nullptr) return;
  JsonFields inner(*config, "output_config", fields.ignored());
  const std::optional<std::string> effort = inner.String({"effort"});
  const json* format = inner.Object("format");
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  if (effort) translator->Set("reasoning_effort", QuotedText(*effort), "output_config.effort");
  if (format == nullptr) return;
  JsonFields of_format(*format, "output_config.format", fields.ignored());
  if (of_format.String({"type"}) != "json_schema")
    of_format.Fail("invalid_value", "type", "must be json_schema");
  if (of_format.FindGiven({"schema"}) == nullptr)
    of_format.Fail("missing_field", "schema", "is required");
  of_format.IgnoreUnknown();
  if (of_format.error()) return fields.set_error(*of_format.error());
  ObjectText schema;
  schema.AddText("schema",
                 MemberText(MemberText(translator->Text("output_config"), "format"), "schema"));
  translator->Set(
      "response_format",
      ObjectText().Add("type", "json_schema").AddText("json_schema", schema.text()).text(),
      "output_config.format");
}

}  // namespace

std::variant<ChatTranslation, ApiError> TranslateMessage(const std::string& body,
                                                         const ApiLimits& limits) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, limits.max_json_depth, &object))
    return *error;
  Translator translator(body, object, limits.refuse_unknown_fields);
  JsonFields& fields = translator.fields();
  translator.RefuseUnshown(
      {"return_token_ids", "return_tokens_as_token_ids", "logprobs", "top_logprobs", "trace"});
  ReadMessages(&translator);
  if (fields.FindValue({"stop_sequences"}) != nullptr)
    translator.Set("stop", std::string(translator.Text("stop_sequences")), "stop_sequences");
  translator.EachTool(ReadMessagesTool);
  ReadMessagesToolChoice(&translator);
  ReadThinking(&translator);
  ReadOutputConfig(&translator);
  for (const char* name : {"container", "mcp_servers"}) fields.Neutral(name, json::array());
  fields.Hint("service_tier", json::array({"auto", "standard_only"}));
  for (const char* hint : {"cache_control", "context_management", "inference_geo", "speed"})
    fields.Hint(hint, json::array());
  translator.ReadStreamOptions();
  return translator.Finish();
}

}  // namespace coppice::coordinator
