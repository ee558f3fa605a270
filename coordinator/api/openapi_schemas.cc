#include "coordinator/api/openapi_schemas.h"

#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/api/parameter_fields.h"
#include "decoding/method.h"
#include "decoding/parameter.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// Fields of both endpoints that the table of parameters does not describe as scalars.
constexpr char kCommon[] = R"({
  "model": {"type": "string", "description": "A served name; absent: the first."},
  "decoding": {"enum": ["multinomial", "beam_sampling", "beam_sampling_without_replacement", "beam_search"]},
  "use_beam_search": {"type": "boolean"},
  "do_sample": {"type": "boolean"},
  "sampling_scope": {"enum": ["row", "row_raw", "joint", "rowcut"]},
  "beam_duplicates": {"type": "string"},
  "early_stopping": {"anyOf": [{"type": "boolean"}, {"const": "never"}]},
  "seed": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
  "stop": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16}]},
  "include_stop_str_in_output": {"type": "boolean"},
  "stop_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 64},
  "ignore_eos": {"type": "boolean"},
  "logit_bias": {"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}, "maxProperties": 1024},
  "stream": {"type": "boolean"},
  "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
  "return_token_ids": {"type": "boolean"},
  "return_tokens_as_token_ids": {"type": "boolean"},
  "skip_special_tokens": {"type": "boolean", "default": true},
  "add_special_tokens": {"type": "boolean"},
  "user": {"description": "Without effect, never logged."},
  "safety_identifier": {"description": "Without effect."},
  "metadata": {"description": "Without effect."},
  "parallel_tool_calls": {"description": "Without effect."},
  "service_tier": {"enum": ["auto", "default"], "description": "Without effect."},
  "store": {"const": false},
  "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
  "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
  "truncate_prompt_tokens": {"type": "null"},
  "prompt_logprobs": {"type": "null"},
  "cache_salt": {"type": "null"},
  "priority": {"const": 0},
  "num_beam_groups": {"const": 1},
  "diversity_penalty": {"const": 0},
  "spaces_between_special_tokens": {"const": true},
  "tools": {"type": "array", "maxItems": 0}
})";
// Fields that bind the output to a format. At most one may ask for one.
constexpr char kFormats[] = R"({
  "response_format": {"type": "object", "required": ["type"], "properties": {
    "type": {"enum": ["text", "json_object", "json_schema"]},
    "json_schema": {"type": "object", "additionalProperties": false, "required": ["schema"], "properties": {
      "schema": {"type": ["object", "string"]}, "name": {"type": "string"}, "description": {"type": "string"},
      "strict": {"type": "boolean", "description": "Without effect: the schema always holds."}}}}},
  "structured_outputs": {"type": "object", "additionalProperties": false, "properties": {
    "regex": {"type": "string", "minLength": 1},
    "choice": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    "grammar": {"type": "string", "minLength": 1, "description": "In the notation of GBNF."},
    "json": {"type": ["object", "string"], "description": "A JSON schema, or the text of one."},
    "json_object": {"type": "boolean"},
    "disable_fallback": {"const": false}, "disable_any_whitespace": {"const": false},
    "disable_additional_properties": {"const": false},
    "whitespace_pattern": {"type": "null"}, "structural_tag": {"type": "null"}}},
  "guided_regex": {"type": "string", "minLength": 1, "description": "Means structured_outputs.regex."},
  "guided_choice": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1,
    "description": "Means structured_outputs.choice."},
  "guided_grammar": {"type": "string", "minLength": 1, "description": "Means structured_outputs.grammar."},
  "guided_json": {"type": ["object", "string"], "description": "Means structured_outputs.json."},
  "guided_whitespace_pattern": {"type": "null"}, "guided_decoding_backend": {"type": "null"},
  "regex": {"type": "string", "minLength": 1, "description": "Means structured_outputs.regex."},
  "ebnf": {"type": "string", "minLength": 1, "description": "Means structured_outputs.grammar."},
  "json_schema": {"type": ["object", "string"], "description": "Means structured_outputs.json."}
})";
constexpr char kCompletion[] = R"({
  "prompt": {"anyOf": [{"type": "string"},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 64},
    {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}, "minItems": 1, "maxItems": 64}],
    "description": "One text, several texts, the token ids of one prompt, or those of several."},
  "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
  "echo": {"type": "boolean"},
  "suffix": {"type": "null"}
})";
constexpr char kChat[] = R"({
  "messages": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "object",
    "required": ["role", "content"], "properties": {
      "role": {"enum": ["system", "developer", "user", "assistant"]},
      "name": {"type": ["string", "null"]},
      "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
        "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]}}}},
  "add_generation_prompt": {"type": "boolean", "default": true},
  "continue_final_message": {"type": "boolean", "default": false},
  "logprobs": {"type": "boolean"},
  "functions": {"type": "array", "maxItems": 0},
  "function_call": {"const": "none"},
  "tool_choice": {"const": "none"},
  "modalities": {"const": ["text"]},
  "audio": {"type": "null"}, "prediction": {"type": "null"}, "web_search_options": {"type": "null"},
  "reasoning_effort": {"type": "null"}, "verbosity": {"type": "null"}, "chat_template": {"type": "null"},
  "chat_template_kwargs": {"type": "null"}, "documents": {"type": "null"}
})";
constexpr char kOthers[] = R"({
  "TokenizeRequest": {"type": "object", "additionalProperties": false, "properties": {
    "model": {"type": ["string", "null"]}, "prompt": {"type": "string"},
    "messages": {"$ref": "#/components/schemas/ChatRequest/properties/messages"},
    "add_special_tokens": {"type": "boolean"}, "add_generation_prompt": {"type": "boolean", "default": true},
    "continue_final_message": {"type": "boolean", "default": false}, "return_token_strs": {"type": "boolean", "default": false}}},
  "TokenizeAnswer": {"type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": ["integer", "null"]},
    "tokens": {"type": "array", "items": {"type": "integer"}}, "token_strs": {"type": "array", "items": {"type": "string"}}}},
  "DetokenizeRequest": {"type": "object", "additionalProperties": false, "required": ["tokens"], "properties": {
    "model": {"type": ["string", "null"]}, "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "skip_special_tokens": {"type": "boolean", "default": true}}},
  "DetokenizeAnswer": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "DrainRequest": {"type": "object", "additionalProperties": false, "required": ["target"], "properties": {
    "target": {"type": "string", "pattern": "^(cluster|replica:.+|draft:.+)$"}, "timeout": {"type": "number", "minimum": 0}}},
  "UndrainRequest": {"type": "object", "additionalProperties": false, "required": ["target"], "properties": {
    "target": {"type": "string", "pattern": "^(cluster|replica:.+|draft:.+)$"}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len", "capabilities"], "properties": {
    "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": {"type": "string"},
    "max_model_len": {"type": ["integer", "null"]}, "capabilities": {"type": "object"}}},
  "ModelList": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens", "speculation"], "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object"}, "energy_joules": {"type": "number"}, "speculation": {"type": "object"}}},
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {"message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": "string"}}}}}
})";
constexpr char kChoice[] =
    R"({"type": "object", "required": ["index", "finish_reason", "stop_reason", "seed", "logprobs"], "properties": {
  "index": {"type": "integer"}, "finish_reason": {"enum": ["stop", "length"]}, "stop_reason": {"type": ["string", "integer", "null"]},
  "seed": {"type": "integer"}, "score": {"type": ["number", "null"]}, "joint_logprob": {"type": ["number", "null"]},
  "logprobs": {"type": ["object", "null"]}, "token_ids": {"type": "array", "items": {"type": "integer"}},
  "prompt_token_ids": {"type": "array", "items": {"type": "integer"}}}})";

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
    if (parameter["default"] == "auto") either["anyOf"].push_back({{"const", "auto"}});
    return either;
  }
  schema["default"] = parameter["default"];
  return schema;
}

// null counts as absent.
Json OrNull(Json schema) {
  if (schema.value("type", Json()) == "null" || !schema.contains("description")) {
    if (schema.value("type", Json()) == "null") return schema;
    return {{"anyOf", Json::array({std::move(schema), {{"type", "null"}}})}};
  }
  Json described;
  described["description"] = schema["description"];
  schema.erase("description");
  if (schema.empty()) return described;
  described["anyOf"] = Json::array({std::move(schema), {{"type", "null"}}});
  return described;
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
  object["additionalProperties"] = false;
  Json& properties = object["properties"];
  properties["method"]["enum"] = {"auto"};
  for (const decoding::MethodRow& row : decoding::Methods())
    properties["method"]["enum"].push_back(std::string(row.name));
  AddParameters(limits, "speculative", &properties);
  AddFields(
      R"({"allow_lossy": {"type": "boolean", "default": false}, "draft_tree": {"type": "string"}})",
      &properties);
  return {{"anyOf", Json::array({{{"type", "boolean"}}, {{"const", "auto"}}, std::move(object)})}};
}

Json RequestSchema(const ApiLimits& limits, const char* own, const char* required) {
  Json schema;
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  schema["required"] = Json::array({required});
  Json& properties = schema["properties"];
  AddFields(own, &properties);
  AddParameters(limits, "", &properties);
  AddFields(kCommon, &properties);
  AddFields(kFormats, &properties);
  for (const char* name : {"n", "num_return_sequences", "best_of"})
    properties[name] = OrNull({{"type", "integer"}, {"minimum", 1}, {"maximum", limits.max_n}});
  properties["timeout"] = OrNull({{"type", "number"},
                                  {"exclusiveMinimum", 0},
                                  {"maximum", limits.max_timeout_s},
                                  {"default", limits.default_timeout_s}});
  properties["speculative"] = OrNull(SpeculativeSchema(limits));
  return schema;
}

Json AnswerSchema(const char* object, const char* text, Json text_schema) {
  Json choice = Json::parse(kChoice);
  choice["properties"][text] = std::move(text_schema);
  choice["required"].push_back(text);
  Json schema;
  schema["type"] = "object";
  schema["required"] = {"id", "object", "created", "model", "choices", "usage"};
  Json& properties = schema["properties"];
  properties["id"]["type"] = "string";
  properties["object"]["const"] = object;
  properties["created"]["type"] = "integer";
  properties["model"]["type"] = "string";
  properties["system_fingerprint"]["type"] = "string";
  properties["choices"] = {{"type", "array"}, {"items", std::move(choice)}};
  properties["usage"]["$ref"] = "#/components/schemas/Usage";
  properties["timings"]["type"] = "object";
  return schema;
}

}  // namespace

nlohmann::ordered_json Schemas(const ApiLimits& limits) {
  Json schemas = Json::parse(kOthers);
  schemas["CompletionRequest"] = RequestSchema(limits, kCompletion, "prompt");
  schemas["ChatRequest"] = RequestSchema(limits, kChat, "messages");
  schemas["CompletionAnswer"] = AnswerSchema("text_completion", "text", {{"type", "string"}});
  schemas["ChatAnswer"] = AnswerSchema(
      "chat.completion", "message",
      {{"type", "object"},
       {"properties", {{"role", {{"const", "assistant"}}}, {"content", {{"type", "string"}}}}}});
  return schemas;
}

}  // namespace coppice::coordinator
