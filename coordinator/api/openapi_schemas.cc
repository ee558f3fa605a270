#include "coordinator/api/openapi_schemas.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/api/parameter_fields.h"
#include "coordinator/api/unserved_fields.h"
#include "decoding/method.h"
#include "decoding/parameter.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// Fields of both endpoints that the table of parameters does not describe as scalars.
constexpr char kCommon[] = R"({
  "model": {"type": "string", "description": "A served name; absent: the first."},
  "decoding": {"type": "string", "enum": ["multinomial", "beam_sampling", "beam_sampling_without_replacement", "beam_search"]},
  "use_beam_search": {"type": "boolean"},
  "do_sample": {"type": "boolean"},
  "sampling_scope": {"type": "string", "enum": ["row", "row_raw", "joint", "rowcut"]},
  "beam_duplicates": {"type": "string"},
  "early_stopping": {"anyOf": [{"type": "boolean"}, {"type": "string", "const": "never"}]},
  "seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
  "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16}]},
  "include_stop_str_in_output": {"type": "boolean"},
  "stop_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 64},
  "ignore_eos": {"type": "boolean"},
  "logit_bias": {"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}, "maxProperties": 1024},
  "stream": {"type": "boolean"},
  "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}, "continuous_usage_stats": {"type": "boolean"}}},
  "return_token_ids": {"type": "boolean"},
  "return_tokens_as_token_ids": {"type": "boolean"},
  "trace": {"type": "boolean", "default": false, "description": "Shows the draft forest and the outcome of every round."},
  "skip_special_tokens": {"type": "boolean", "default": true},
  "add_special_tokens": {"type": "boolean"},
  "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2}
})";
// Fields that bind the output to a format. At most one may ask for one.
constexpr char kFormats[] = R"({
  "catalogue": {"description": "Answers are items of this catalogue.", "anyOf": [{"type": "string", "minLength": 1},
    {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1},
      "items": {"type": "array", "items": {"type": "string"}, "description": "Ids of items: only these."},
      "exclude": {"type": "array", "items": {"type": "string"}, "description": "Ids of items: none of these."},
      "prefix": {"type": "array", "items": {"type": "integer"}, "description": "Tokens of an item that stand before the answer."}}}]},
  "response_format": {"type": "object", "required": ["type"], "properties": {
    "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]},
    "json_schema": {"type": "object", "required": ["schema"], "properties": {
      "schema": {"type": ["object", "string"]}, "name": {"type": "string"}, "description": {"type": "string"},
      "strict": {"type": "boolean", "description": "Without effect: the schema always holds."}}}}},
  "structured_outputs": {"type": "object", "properties": {
    "regex": {"type": "string", "minLength": 1},
    "choice": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    "grammar": {"type": "string", "minLength": 1, "description": "In the notation of GBNF or Lark."},
    "json": {"type": ["object", "string"], "description": "A JSON schema, or the text of one."},
    "json_object": {"type": "boolean"},
    "disable_any_whitespace": {"description": "Not served."}, "disable_additional_properties": {"description": "Not served."},
    "whitespace_pattern": {"description": "Not served."}, "structural_tag": {"description": "Not served."}}},
  "guided_regex": {"type": "string", "minLength": 1, "description": "Means structured_outputs.regex."},
  "guided_choice": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1,
    "description": "Means structured_outputs.choice."},
  "guided_grammar": {"type": "string", "minLength": 1, "description": "Means structured_outputs.grammar."},
  "guided_json": {"type": ["object", "string"], "description": "Means structured_outputs.json."},
  "regex": {"type": "string", "minLength": 1, "description": "Means structured_outputs.regex."},
  "ebnf": {"type": "string", "minLength": 1, "description": "Means structured_outputs.grammar."},
  "grammar": {"type": "string", "minLength": 1, "description": "Means structured_outputs.grammar."},
  "json_schema": {"type": ["object", "string"], "description": "Means structured_outputs.json."}
})";
constexpr char kCompletion[] = R"({
  "prompt": {"anyOf": [{"type": "string"},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 64},
    {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}, "minItems": 1, "maxItems": 64}],
    "description": "One text, several texts, the token ids of one prompt, or those of several."},
  "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "echo": {"type": "boolean"}
})";
constexpr char kChat[] = R"({
  "messages": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"$ref": "#/components/schemas/Message"}},
  "add_generation_prompt": {"type": "boolean", "default": true},
  "continue_final_message": {"type": "boolean", "default": false},
  "logprobs": {"type": "boolean"},
  "reasoning_effort": {"type": "string", "description": "For the chat template, if it reads one."},
  "chat_template_kwargs": {"type": "object", "description": "Variables of the chat template."},
  "enable_thinking": {"type": "boolean", "description": "For the chat template, if it reads it."},
  "include_reasoning": {"type": "boolean", "default": true},
  "separate_reasoning": {"type": "boolean", "default": true},
  "reasoning_format": {"type": "string", "description": "none: the reasoning stays in the content."},
  "tools": {"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/Tool"}},
  "tool_choice": {"anyOf": [{"type": "string", "enum": ["none", "auto", "required", "any"]}, {"type": "object"}]},
  "parallel_tool_calls": {"type": "boolean", "default": true},
  "documents": {"type": "array", "items": {"type": "object"}, "description": "For the chat template."}
})";
constexpr char kOthers[] = R"({
  "Message": {"type": "object", "required": ["role"], "properties": {
    "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]}, "name": {"type": "string"},
    "tool_calls": {"type": "array", "items": {"type": "object", "required": ["function"], "properties": {
      "id": {"type": "string"}, "type": {"type": "string", "const": "function"}, "function": {"type": "object",
      "required": ["name"], "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}}}}},
    "tool_call_id": {"type": "string"},
    "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}}]},
    "reasoning_content": {"type": "string"}, "reasoning": {"type": "string"}}},
  "TextPart": {"type": "object", "required": ["type", "text"], "properties": {
    "type": {"type": "string", "enum": ["text", "input_text", "output_text"]}, "text": {"type": "string"}}},
  "Tool": {"type": "object", "required": ["function"], "properties": {
    "type": {"type": "string", "const": "function"},
    "function": {"type": "object", "required": ["name"], "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_.:/-]+$"},
      "description": {"type": "string"}, "parameters": {"type": "object"}, "strict": {"type": "boolean"}}}}},
  "TokenizeRequest": {"type": "object", "properties": {
    "model": {"type": "string"}, "prompt": {"type": "string"}, "add_special_tokens": {"type": "boolean"},
    "return_token_strs": {"type": "boolean", "default": false}}},
  "DetokenizeRequest": {"type": "object", "required": ["tokens"], "properties": {
    "model": {"type": "string"}, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "skip_special_tokens": {"type": "boolean", "default": true}}},
  "DrainRequest": {"type": "object", "required": ["target"], "properties": {
    "target": {"type": "string", "pattern": "^(cluster|replica:.+|draft:.+)$"}, "timeout": {"type": "number", "minimum": 0},
    "wait": {"type": "number", "minimum": 0}, "move": {"type": "boolean", "default": false}}},
  "UndrainRequest": {"type": "object", "required": ["target"], "properties": {
    "target": {"type": "string", "pattern": "^(cluster|replica:.+|draft:.+)$"}}}
})";

// A scalar of the table of parameters, as ParametersJson describes it.
Json ScalarSchema(const Json& parameter) {
  Json schema;
  schema["type"] = parameter["type"];
  if (parameter.contains("minimum") && !parameter["minimum"].is_null()) {
    const bool open = parameter["exclusive_minimum"], or_zero = parameter["or_zero"];
    schema[open && !or_zero ? "exclusiveMinimum" : "minimum"] =
        or_zero ? Json(0) : parameter["minimum"];
  }
  if (parameter.contains("maximum") && !parameter["maximum"].is_null())
    schema["maximum"] = parameter["maximum"];
  if (parameter["default"].is_string()) {  // a word such as "auto" beside the numbers
    Json either;
    either["anyOf"] = Json::array({std::move(schema)});
    if (parameter["default"] == "auto")
      either["anyOf"].push_back({{"type", "string"}, {"const", "auto"}});
    return either;
  }
  schema["default"] = parameter["default"];
  return schema;
}

// null counts as absent. A schema without a type has null already.
Json OrNull(Json schema) {
  Json either;
  if (schema.contains("description")) either["description"] = schema["description"];
  schema.erase("description");
  if (!schema.empty()) either["anyOf"] = Json::array({std::move(schema), {{"type", "null"}}});
  return either;
}

// For every field that is not required.
void AllowNull(Json* schema) {
  const Json required = schema->value("required", Json::array());
  for (auto& [name, field] : (*schema)["properties"].items()) {
    if (std::find(required.begin(), required.end(), name) == required.end())
      field = OrNull(std::move(field));
  }
}

// The fields of an object that the table of parameters has, with their aliases.
void AddParameters(const ApiLimits& limits, const std::string& object, Json* properties) {
  for (const Json& parameter : ParametersJson(limits)) {
    if (parameter["object"] != object || !parameter.contains("type")) continue;
    (*properties)[parameter["name"].get<std::string>()] = OrNull(ScalarSchema(parameter));
    for (const Json& alias : parameter["aliases"]) {
      Json schema = OrNull(ScalarSchema(parameter));
      schema["description"] = "Means " + parameter["name"].get<std::string>() + ".";
      (*properties)[alias.get<std::string>()] = std::move(schema);
    }
  }
}

void AddFields(const char* text, Json* properties) {
  const Json fields = Json::parse(text);
  for (const auto& [name, schema] : fields.items()) {
    if (!properties->contains(name)) (*properties)[name] = OrNull(schema);
  }
}

Json SpeculativeSchema(const ApiLimits& limits) {
  Json object;
  object["type"] = "object";
  Json& properties = object["properties"];
  properties["method"]["type"] = "string";
  properties["method"]["enum"] = {"auto"};
  for (const decoding::MethodRow& row : decoding::Methods())
    properties["method"]["enum"].push_back(std::string(row.name));
  AddParameters(limits, "speculative", &properties);
  AddFields(
      R"({"allow_lossy": {"type": "boolean", "default": false}, "draft_tree": {"type": "string"}})",
      &properties);
  return {{"anyOf", Json::array({{{"type", "boolean"}},
                                 {{"type", "string"}, {"const", "auto"}},
                                 std::move(object)})}};
}

// The fields that are known and not served. Any value, because clients send neutral ones of all types.
void AddUnserved(bool chat, Json* properties) {
  for (const UnservedField& field : UnservedFields()) {
    if (!IsOf(field, chat) || properties->contains(field.name)) continue;
    const char* what = field.effect == UnservedField::Effect::kNone   ? "Without effect."
                       : field.effect == UnservedField::Effect::kHint ? "A hint, ignored."
                                                                      : "Not served.";
    (*properties)[field.name]["description"] = what;
  }
}

Json RequestSchema(const ApiLimits& limits, bool chat) {
  Json schema;
  schema["type"] = "object";
  schema["required"] = Json::array({chat ? "messages" : "prompt"});
  Json& properties = schema["properties"];
  AddFields(chat ? kChat : kCompletion, &properties);
  AddParameters(limits, "", &properties);
  AddFields(kCommon, &properties);
  AddFields(kFormats, &properties);
  for (const char* name : {"n", "num_return_sequences", "best_of"})
    properties[name] = OrNull({{"type", "integer"}, {"minimum", 1}, {"maximum", limits.max_n}});
  properties["timeout"] = OrNull({{"type", "number"},
                                  {"exclusiveMinimum", 0},
                                  {"maximum", limits.max_timeout_s},
                                  {"default", limits.default_timeout_s}});
  properties["priority"] = OrNull(
      {{"type", "integer"}, {"default", 0}, {"description", "Lower values are served first."}});
  properties["speculative"] = OrNull(SpeculativeSchema(limits));
  AddUnserved(chat, &properties);
  return schema;
}

}  // namespace

nlohmann::ordered_json RequestSchemas(const ApiLimits& limits) {
  Json schemas = Json::parse(kOthers);
  for (Json& schema : schemas) AllowNull(&schema);
  AddFields(kChat, &schemas["TokenizeRequest"]["properties"]);
  schemas["CompletionRequest"] = RequestSchema(limits, /*chat=*/false);
  schemas["ChatRequest"] = RequestSchema(limits, /*chat=*/true);
  return schemas;
}

}  // namespace coppice::coordinator
