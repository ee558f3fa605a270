#include "coordinator/api/openapi_forms.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kResponsesFields[] = R"({
  "input": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object"}}],
    "description": "A text, or messages, calls of functions, their outputs and reasoning."},
  "instructions": {"type": "string", "description": "The first message, of the system."},
  "max_output_tokens": {"type": "integer", "minimum": -1},
  "tools": {"type": "array", "items": {"$ref": "#/components/schemas/ResponsesTool"}},
  "tool_choice": {"anyOf": [{"type": "string", "enum": ["none", "auto", "required"]},
    {"type": "object", "required": ["type", "name"], "properties": {"type": {"type": "string", "const": "function"}, "name": {"type": "string"}}}]},
  "text": {"type": "object", "properties": {"format": {"type": "object", "required": ["type"], "properties": {
    "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]}, "name": {"type": "string"},
    "schema": {"type": ["object", "string"]}, "strict": {"type": ["boolean", "null"]}}}}},
  "reasoning": {"type": "object", "properties": {"effort": {"type": ["string", "null"]}, "summary": {"type": ["string", "null"]}}},
  "include": {"type": "array", "items": {"type": "string"}},
  "truncation": {"type": "string", "description": "A hint, ignored."},
  "max_tool_calls": {"type": "integer", "description": "A hint, ignored."},
  "n": {"type": "integer", "const": 1},
  "background": {"description": "Not served."}, "previous_response_id": {"description": "Not served."},
  "conversation": {"description": "Not served."}, "prompt": {"description": "Not served."}
})";

constexpr char kMessagesFields[] = R"({
  "messages": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "object", "required": ["role", "content"], "properties": {
    "role": {"type": "string", "enum": ["user", "assistant"]},
    "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {
      "type": {"type": "string", "enum": ["text", "thinking", "redacted_thinking", "tool_use", "tool_result"]}}}}]}}}},
  "system": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}}]},
  "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": 16},
  "tools": {"type": "array", "items": {"$ref": "#/components/schemas/MessagesTool"}},
  "tool_choice": {"type": "object", "required": ["type"], "properties": {
    "type": {"type": "string", "enum": ["auto", "any", "tool", "none"]}, "name": {"type": "string"},
    "disable_parallel_tool_use": {"type": "boolean"}}},
  "thinking": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string", "enum": ["enabled", "disabled", "adaptive"]},
    "budget_tokens": {"type": "integer", "description": "A hint, ignored."}}},
  "output_config": {"type": "object", "properties": {"effort": {"type": ["string", "null"]},
    "format": {"type": ["object", "null"], "required": ["type", "schema"], "properties": {
      "type": {"type": "string", "const": "json_schema"}, "schema": {"type": "object"}}}}},
  "n": {"type": "integer", "const": 1},
  "container": {"description": "Not served."}, "mcp_servers": {"description": "Not served."},
  "context_management": {"description": "A hint, ignored."}
})";

constexpr char kFormParts[] = R"({
  "ResponsesTool": {"type": "object", "required": ["type", "name"], "properties": {"type": {"type": "string", "const": "function"},
    "name": {"type": "string"}, "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]},
    "strict": {"type": ["boolean", "null"]}}},
  "MessagesTool": {"type": "object", "required": ["name", "input_schema"], "properties": {"type": {"type": ["string", "null"]},
    "name": {"type": "string"}, "description": {"type": ["string", "null"]}, "input_schema": {"type": "object"}}}
})";

constexpr char kFormAnswers[] = R"({
  "ResponsesItem": {"type": "object", "required": ["id", "type", "status"], "properties": {
    "id": {"type": "string"}, "type": {"type": "string", "enum": ["reasoning", "message", "function_call"]},
    "status": {"type": "string", "enum": ["completed", "incomplete"]}, "role": {"type": "string", "const": "assistant"},
    "content": {"type": "array", "items": {"type": "object", "required": ["type", "text"], "properties": {
      "type": {"type": "string", "enum": ["output_text", "reasoning_text"]}, "text": {"type": "string"},
      "annotations": {"type": "array", "items": {}}, "logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}},
    "summary": {"type": "array", "items": {}}, "call_id": {"type": "string"}, "name": {"type": "string"},
    "arguments": {"type": "string", "description": "A JSON object; of an incomplete item, the beginning of one."}}},
  "ResponsesAnswer": {"type": "object", "required": ["id", "object", "created_at", "status", "error", "incomplete_details", "model",
      "system_fingerprint", "output", "tools", "tool_choice", "parallel_tool_calls", "usage", "stop_reason", "seed", "score",
      "joint_logprob", "timings"], "properties": {
    "id": {"type": "string"}, "object": {"type": "string", "const": "response"}, "created_at": {"type": "integer"},
    "status": {"type": "string", "enum": ["completed", "incomplete"]}, "error": {"type": "null"},
    "incomplete_details": {"type": ["object", "null"], "properties": {"reason": {"type": "string", "const": "max_output_tokens"}}},
    "model": {"type": "string"}, "system_fingerprint": {"type": "string"},
    "output": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/ResponsesItem"}},
    "tools": {"type": "array", "items": {}}, "tool_choice": {}, "parallel_tool_calls": {"type": "boolean"},
    "temperature": {"type": "number"}, "top_p": {"type": "number"},
    "usage": {"type": "object", "required": ["input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details",
        "total_tokens", "speculation"], "properties": {
      "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
      "input_tokens_details": {"type": "object", "properties": {"cached_tokens": {"type": "integer"}}},
      "output_tokens_details": {"type": "object", "properties": {"reasoning_tokens": {"type": "integer"}}},
      "energy_joules": {"type": "number"}, "speculation": {"$ref": "#/components/schemas/Speculation"}}},
    "stop_reason": {"type": ["string", "integer", "null"]}, "seed": {"type": "integer"}, "score": {"type": ["number", "null"]},
    "joint_logprob": {"type": ["number", "null"]}, "beam_mass": {"type": "number"},
    "timings": {"$ref": "#/components/schemas/Timings"}}},
  "MessagesAnswer": {"type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage",
      "seed", "score", "joint_logprob", "timings"], "properties": {
    "id": {"type": "string"}, "type": {"type": "string", "const": "message"}, "role": {"type": "string", "const": "assistant"},
    "model": {"type": "string"},
    "content": {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {
      "type": {"type": "string", "enum": ["thinking", "text", "tool_use"]}, "thinking": {"type": "string"},
      "signature": {"type": "string"}, "text": {"type": "string"}, "id": {"type": "string"}, "name": {"type": "string"},
      "input": {"type": "object", "description": "Of a call that broke off: {\"__unparsed\": what the model wrote}."}}}},
    "stop_reason": {"type": "string", "enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
    "stop_sequence": {"type": ["string", "null"]},
    "usage": {"type": "object", "required": ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens",
        "speculation"], "properties": {
      "input_tokens": {"type": "integer"}, "cache_creation_input_tokens": {"type": "integer"},
      "cache_read_input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}, "energy_joules": {"type": "number"},
      "speculation": {"$ref": "#/components/schemas/Speculation"}}},
    "seed": {"type": "integer"}, "score": {"type": ["number", "null"]}, "joint_logprob": {"type": ["number", "null"]},
    "beam_mass": {"type": "number"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
  "CountTokensAnswer": {"type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}},
  "TokenizerInfo": {"type": "object", "required": ["tokenizer_class", "chat_template", "vocab_size"], "properties": {
    "tokenizer_class": {"type": ["string", "null"]}, "chat_template": {"type": ["string", "null"]},
    "vocab_size": {"type": "integer"}}}
})";

// The fields of a chat without these, and with others. One of them is required; any other may be null.
Json FormRequest(const Json& chat, std::initializer_list<const char*> without, const char* fields,
                 const char* required) {
  Json schema;
  schema["type"] = "object";
  schema["required"] = Json::array({required});
  Json& properties = schema["properties"];
  const Json own = Json::parse(fields);
  for (const auto& [name, field] : own.items()) {
    if (name == required || (!field.contains("type") && !field.contains("anyOf"))) {
      properties[name] = field;
    } else {
      properties[name]["anyOf"] = Json::array({field, {{"type", "null"}}});
    }
  }
  for (const auto& [name, field] : chat["properties"].items()) {
    bool left_out = properties.contains(name);
    for (const char* one : without) left_out = left_out || name == one;
    if (!left_out) properties[name] = field;
  }
  return schema;
}

}  // namespace

Json FormRequestSchemas(const Json& chat) {
  Json schemas = Json::parse(kFormParts);
  schemas["ResponsesRequest"] =
      FormRequest(chat, {"messages", "response_format", "logprobs", "reasoning_effort"},
                  kResponsesFields, "input");
  schemas["MessagesRequest"] =
      FormRequest(chat, {"response_format", "logprobs", "top_logprobs", "stop", "reasoning_effort"},
                  kMessagesFields, "messages");
  schemas["CountTokensRequest"] = schemas["MessagesRequest"];
  return schemas;
}

Json FormAnswerSchemas() { return Json::parse(kFormAnswers); }

}  // namespace coppice::coordinator
