// POST /v1/responses as a chat completion.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"
#include "coordinator/api/responses_input.h"
#include "coordinator/api/translation.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr char kLogprobs[] = "message.output_text.logprobs";

void ReadInstructions(Translator* translator) {
  const json* instructions = translator->fields().FindValue({"instructions"});
  if (instructions == nullptr) return;
  if (!instructions->is_string())
    return translator->fields().Fail("invalid_type", "instructions", "must be a text");
  ObjectText message;
  message.Add("role", "system").AddText("content", translator->Text("instructions"));
  translator->AddMessage(message, "instructions");
}

void ReadTool(const json& tool, absl::string_view text, const std::string& path,
              Translator* translator) {
  JsonFields& fields = translator->fields();
  if (!tool.is_object()) return fields.Fail("invalid_type", path, "must be an object");
  JsonFields inner(tool, path, fields.ignored());
  const std::string type = inner.String({"type"}).value_or("");
  if (type.empty()) {
    inner.Fail("missing_field", "type", "is required");
  } else if (type != "function") {
    inner.Fail("unsupported_field", "type",
               absl::StrCat("is ", PrintableName(type),
                            ", which is not supported: only tools of the type function are, which "
                            "the client calls"));
  }
  ObjectText function;
  for (const auto& [name, value] : MemberTexts(text)) {
    if (name == "name" || name == "description" || name == "parameters" || name == "strict")
      function.AddText(name, value);
  }
  for (const char* name : {"name", "description", "parameters", "strict"}) inner.Find({name});
  for (const char* name : {"defer_loading", "allowed_callers", "async"})
    inner.Hint(name, json::array());
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  translator->AddTool(function, path, "parameters");
}

void ReadToolChoice(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* choice = fields.FindValue({"tool_choice"});
  if (choice == nullptr) return;
  if (choice->is_string())
    return translator->Set("tool_choice", std::string(translator->Text("tool_choice")),
                           "tool_choice");
  if (!choice->is_object())
    return fields.Fail("invalid_type", "tool_choice", "must be a word or an object");
  JsonFields inner(*choice, "tool_choice", fields.ignored());
  const std::string type = inner.String({"type"}).value_or("");
  const std::string name = inner.String({"name"}).value_or("");
  if (type != "function") {
    inner.Fail("unsupported_field", "type",
               absl::StrCat("must be function, got ", PrintableName(type)));
  } else if (name.empty()) {
    inner.Fail("missing_field", "name", "is required");
  }
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  translator->Place("tool_choice.function", "tool_choice");
  ObjectText function;
  function.Add("name", name);
  translator->Set("tool_choice",
                  ObjectText().Add("type", type).AddText("function", function.text()).text(),
                  "tool_choice");
}

void ReadText(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* text = fields.Object("text");
  if (text == nullptr) return;
  JsonFields inner(*text, "text", fields.ignored());
  inner.Hint("verbosity", json::array());
  const json* format = inner.Object("format");
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  if (format == nullptr) return;
  JsonFields of_format(*format, "text.format", fields.ignored());
  const std::string type = of_format.String({"type"}).value_or("");
  ObjectText schema;
  if (type == "json_schema") {
    const absl::string_view members = MemberText(translator->Text("text"), "format");
    for (const char* name : {"name", "description", "schema", "strict"}) {
      if (of_format.FindGiven({name}) != nullptr) schema.AddText(name, MemberText(members, name));
    }
  } else if (type.empty()) {
    of_format.Fail("missing_field", "type", "is required");
  } else if (type != "text" && type != "json_object") {
    of_format.Fail("invalid_value", "type", "must be one of text, json_object, json_schema");
  }
  of_format.IgnoreUnknown();
  if (of_format.error()) return fields.set_error(*of_format.error());
  ObjectText response_format;
  response_format.Add("type", type);
  if (type == "json_schema") response_format.AddText("json_schema", schema.text());
  translator->Set("response_format", response_format.text(), "text.format");
}

void ReadReasoning(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* reasoning = fields.Object("reasoning");
  if (reasoning == nullptr) return;
  JsonFields inner(*reasoning, "reasoning", fields.ignored());
  const std::optional<std::string> effort = inner.String({"effort"});
  for (const char* hint : {"summary", "generate_summary"}) inner.Hint(hint, json::array());
  inner.IgnoreUnknown();
  if (inner.error()) return fields.set_error(*inner.error());
  if (effort) translator->Set("reasoning_effort", QuotedText(*effort), "reasoning.effort");
}

void ReadLogprobs(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* include = fields.FindValue({"include"});
  if (include != nullptr && !(include->is_array() && AllOf(*include, &json::is_string)))
    return fields.Fail("invalid_type", "include", "must be a list of texts");
  bool wanted = false;
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    if ((*include)[i] == kLogprobs) {
      wanted = true;
    } else {
      fields.IgnoreField(absl::StrCat("include[", i, "]"), "unsupported_field",
                         absl::StrCat("is not supported, only ", kLogprobs, " is"));
    }
  }
  const json* top = fields.FindValue({"top_logprobs"});
  if (top != nullptr) {
    translator->Set("top_logprobs", std::string(translator->Text("top_logprobs")), "top_logprobs");
    wanted = wanted || *top != 0;
  }
  if (wanted) translator->Set("logprobs", "true", "include");
}

void RefuseKeptState(JsonFields* fields) {
  constexpr char kNothingKept[] =
      "is not supported: this server keeps no responses; send the whole conversation in input";
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (fields->FindValue({name}) != nullptr) fields->Fail("unsupported_field", name, kNothingKept);
  }
  if (fields->FindValue({"prompt"}) != nullptr) {
    fields->Fail("unsupported_field", "prompt",
                 "is not supported: this server keeps no prompt templates; send input");
  }
  if (fields->FindValue({"background"}) != nullptr) {
    fields->Fail("unsupported_field", "background",
                 "is not supported: this server keeps no responses; use stream");
  }
}

// What the answer repeats.
std::string RepeatedFields(const Translator& translator, const json& object) {
  ObjectText repeated;
  const auto add = [&](const char* name, bool (json::*is)() const noexcept, const char* otherwise) {
    const auto found = object.find(name);
    const bool given = found != object.end() && ((*found).*is)();
    repeated.AddText(name, given ? CompactText(translator.Text(name)) : otherwise);
  };
  add("instructions", &json::is_string, "null");
  add("max_output_tokens", &json::is_number, "null");
  add("metadata", &json::is_object, "{}");
  add("parallel_tool_calls", &json::is_boolean, "true");
  add("reasoning", &json::is_object, R"({"effort":null,"summary":null})");
  add("text", &json::is_object, R"({"format":{"type":"text"}})");
  add("tools", &json::is_array, "[]");
  const json choice = object.value("tool_choice", json());
  const bool given = choice.is_object() || (choice.is_string() && choice != "");
  repeated.AddText("tool_choice",
                   given ? CompactText(translator.Text("tool_choice")) : R"("auto")");
  add("top_logprobs", &json::is_number, "0");
  add("user", &json::is_string, "null");
  repeated.AddMembers(
      R"("background":false,"previous_response_id":null,"service_tier":"default","store":false,)"
      R"("truncation":"disabled")");
  return repeated.members();
}

}  // namespace

std::variant<ChatTranslation, ApiError> TranslateResponse(const std::string& body,
                                                          const ApiLimits& limits) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, limits.max_json_depth, &object))
    return *error;
  Translator translator(body, object, limits.refuse_unknown_fields);
  JsonFields& fields = translator.fields();
  RefuseKeptState(&fields);
  translator.RefuseUnshown({"return_token_ids", "trace"});
  ReadInstructions(&translator);
  ReadInput(&translator);
  if (fields.FindValue({"max_output_tokens"}) != nullptr) {
    translator.Set("max_tokens", std::string(translator.Text("max_output_tokens")),
                   "max_output_tokens");
  }
  translator.EachTool(ReadTool);
  ReadToolChoice(&translator);
  ReadText(&translator);
  ReadReasoning(&translator);
  ReadLogprobs(&translator);
  for (const char* hint : {"truncation", "max_tool_calls"})
    fields.Hint(hint, json::array({"disabled"}));
  translator.ReadStreamOptions();
  if (!fields.error()) translator.repeated_fields = RepeatedFields(translator, object);
  return translator.Finish();
}

}  // namespace coppice::coordinator
