#include "coordinator/api/openapi_answers.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAnswers[] = R"({
  "TokenizeAnswer": {"type": "object", "required": ["count", "max_model_len", "tokens"], "properties": {
    "count": {"type": "integer"}, "max_model_len": {"type": ["integer", "null"]},
    "tokens": {"type": "array", "items": {"type": "integer"}}, "token_strs": {"type": "array", "items": {"type": "string"}}}},
  "DetokenizeAnswer": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len", "capabilities"], "properties": {
    "id": {"type": "string"}, "object": {"type": "string", "const": "model"}, "created": {"type": "integer"},
    "owned_by": {"type": "string"}, "max_model_len": {"type": ["integer", "null"]},
    "default_sampling_params": {"type": "object", "additionalProperties": {"type": "number"}},
    "capabilities": {"$ref": "#/components/schemas/Capabilities"}}},
  "ModelList": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"type": "string", "const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "Capabilities": {"type": "object", "required": ["decodings", "sampling_scopes", "speculative_methods", "methods", "parameters",
      "max_beam_width", "max_n", "max_draft_width", "max_draft_depth", "max_logprobs", "stop_with_beams", "chat",
      "structured_outputs", "catalogues", "deterministic"], "properties": {
    "decodings": {"type": "array", "items": {"type": "string"}}, "sampling_scopes": {"type": "array", "items": {"type": "string"}},
    "speculative_methods": {"type": "array", "items": {"type": "string"}},
    "methods": {"type": "array", "items": {"type": "object", "required": ["name", "decodings", "lossless", "reproducible"], "properties": {
      "name": {"type": "string"}, "decodings": {"type": "array", "items": {"type": "string"}}, "distribution": {"type": "string"},
      "distribution_given": {"type": ["string", "null"]}, "lossless": {"type": "boolean"}, "reproducible": {"type": "boolean"},
      "sampling_scopes": {"type": "array", "items": {"type": "string"}}, "draft_form": {"type": "string"},
      "most_children": {"type": ["integer", "null"]}, "greedy_only": {"type": "boolean"}, "sends": {"type": "string"},
      "options": {"type": "array", "items": {"type": "string"}}, "source": {"type": "string"}}}},
    "parameters": {"type": "array", "items": {"type": "object"}}, "max_beam_width": {"type": "integer"}, "max_n": {"type": "integer"},
    "max_draft_width": {"type": "integer"}, "max_draft_depth": {"type": "integer"}, "max_logprobs": {"type": "integer"},
    "stop_with_beams": {"type": "boolean"}, "chat": {"type": "boolean"}, "structured_outputs": {"type": "boolean"},
    "catalogues": {"$ref": "#/components/schemas/Catalogues"}, "deterministic": {"type": "boolean"}}},
  "Catalogues": {"type": "array", "items": {"$ref": "#/components/schemas/Catalogue"}},
  "Catalogue": {"type": "object", "required": ["name", "fingerprint", "items"], "properties": {
    "name": {"type": "string"}, "fingerprint": {"type": "string"}, "items": {"type": "integer"}}},
  "ReloadAnswer": {"type": "object", "required": ["catalogues"], "properties": {
    "catalogues": {"$ref": "#/components/schemas/Catalogues"}}},
  "Speculation": {"type": "object", "required": ["method", "lossless", "rounds", "plain_rounds", "suffix_rounds", "target_passes", "layers",
      "block_efficiency", "beam_tokens", "drafted_nodes", "accepted_nodes", "accepted_by_layer", "accepted_width", "overlap",
      "draft_width", "draft_depth"], "properties": {
    "method": {"type": "string"}, "lossless": {"type": "boolean"}, "rounds": {"type": "integer"}, "plain_rounds": {"type": "integer"},
    "suffix_rounds": {"type": "integer", "description": "Rounds whose draft was found in the texts of the request or in the corpus."},
    "target_passes": {"type": "integer"}, "layers": {"type": "integer"}, "block_efficiency": {"type": ["number", "null"]},
    "beam_tokens": {"type": "integer"}, "drafted_nodes": {"type": "integer"}, "accepted_nodes": {"type": "integer"},
    "accepted_by_layer": {"type": "array", "items": {"type": "integer"}}, "accepted_width": {"type": ["number", "null"]},
    "overlap": {"type": ["number", "null"]}, "draft_width": {"type": ["number", "null"]}, "draft_depth": {"type": ["number", "null"]}}},
  "Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "speculation"],
    "properties": {
    "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
    "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"], "properties": {"cached_tokens": {"type": "integer"}}},
    "completion_tokens_details": {"type": "object", "properties": {"reasoning_tokens": {"type": "integer"}}},
    "energy_joules": {"type": "number", "description": "Absent if a part of it was not measured."},
    "speculation": {"$ref": "#/components/schemas/Speculation"}}},
  "Round": {"type": "object", "required": ["prompt", "sample", "run", "round", "time_ms", "round_ms", "draft_wait_ms", "draft_ms",
      "forward_ms", "decision_ms", "rows", "layers", "roots", "nodes", "paths", "beams"], "properties": {
    "prompt": {"type": "integer"}, "sample": {"type": "integer"}, "run": {"type": "integer"}, "round": {"type": "integer"},
    "time_ms": {"type": "number"}, "round_ms": {"type": "number"}, "draft_wait_ms": {"type": "number"}, "draft_ms": {"type": "number"},
    "forward_ms": {"type": "number"}, "decision_ms": {"type": "number"},
    "draft_source": {"type": "string", "enum": ["node", "suffix"], "description": "Absent without a draft."}, "rows": {"type": "integer"}, "layers": {"type": "integer"},
    "roots": {"type": "array", "items": {"type": "integer"}},
    "nodes": {"type": "array", "items": {"type": "object", "required": ["parent", "token", "text"], "properties": {
      "parent": {"type": "integer", "description": "An earlier node, or -1 - r for root r."}, "token": {"type": "integer"},
      "text": {"type": "string"}, "log_prob": {"type": "number", "description": "Of the draft; absent if it is not known."},
      "path": {"type": "integer", "description": "Absent if the target did not take the node."}}}},
    "paths": {"type": "array", "items": {"type": "object", "required": ["path", "parent", "token", "text"], "properties": {
      "path": {"type": "integer"}, "parent": {"type": "integer"}, "token": {"type": "integer"}, "text": {"type": "string"}}}},
    "beams": {"type": "array", "items": {"type": "object", "required": ["path", "log_score", "finished"], "properties": {
      "path": {"type": "integer"}, "log_score": {"type": ["number", "null"]}, "finished": {"type": "boolean"}}}},
    "truncated": {"type": "boolean"}}},
  "Timings": {"type": "object", "required": ["queue_ms", "prefill_ms", "first_token_ms", "draft_ms", "draft_wait_ms", "verify_ms",
      "total_ms"], "properties": {
    "queue_ms": {"type": "number"}, "prefill_ms": {"type": "number"}, "first_token_ms": {"type": "number"}, "draft_ms": {"type": "number"},
    "draft_wait_ms": {"type": "number"}, "verify_ms": {"type": "number"}, "total_ms": {"type": "number"}}},
  "CompletionLogprobs": {"type": "object", "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"], "properties": {
    "tokens": {"type": "array", "items": {"type": "string"}}, "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
    "top_logprobs": {"type": "array", "items": {"type": ["object", "null"], "additionalProperties": {"type": "number"}}},
    "text_offset": {"type": "array", "items": {"type": "integer"}}}},
  "TokenLogprob": {"type": "object", "required": ["token", "logprob", "bytes"], "properties": {
    "token": {"type": "string"}, "logprob": {"type": "number"}, "bytes": {"type": "array", "items": {"type": "integer"}}}},
  "ChatLogprobs": {"type": "object", "required": ["content", "refusal"], "properties": {
    "content": {"type": "array", "items": {"type": "object", "required": ["token", "logprob", "bytes", "top_logprobs"], "properties": {
      "token": {"type": "string"}, "logprob": {"type": "number"}, "bytes": {"type": "array", "items": {"type": "integer"}},
      "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}},
    "refusal": {"type": ["string", "null"]}}},
  "ToolCall": {"type": "object", "required": ["id", "type", "function"], "properties": {
    "id": {"type": "string"}, "type": {"type": "string", "const": "function"},
    "function": {"type": "object", "required": ["name", "arguments"], "properties": {
      "name": {"type": "string"}, "arguments": {"type": "string"}}}}},
  "Health": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}},
  "Version": {"type": "object", "required": ["version", "commit", "build"], "properties": {
    "version": {"type": "string"}, "commit": {"type": "string"}, "build": {"type": "string"}}},
  "Kv": {"type": "object", "required": ["block_size", "blocks_total", "blocks_used", "blocks_cached"], "properties": {
    "block_size": {"type": "integer"}, "blocks_total": {"type": "integer"}, "blocks_used": {"type": "integer"},
    "blocks_cached": {"type": "integer"}}},
  "Node": {"type": "object", "required": ["id", "state", "reason", "working", "last_progress_s", "longest_stall_s", "energy_source",
      "model", "kv"], "properties": {
    "id": {"type": "string"}, "state": {"type": "string", "enum": ["starting", "ready", "draining", "lost"]},
    "reason": {"type": ["string", "null"]}, "working": {"type": "boolean"}, "last_progress_s": {"type": "number"},
    "longest_stall_s": {"type": "number"}, "energy_source": {"type": ["string", "null"]}, "model": {"type": "string"},
    "kv": {"$ref": "#/components/schemas/Kv"}, "dtype": {"type": "string"}, "kv_dtype": {"type": "string"}, "backend": {"type": "string"},
    "step": {"type": "integer"}, "running": {"type": "integer"}, "waiting": {"type": "integer"}, "sessions": {"type": "integer"},
    "suffix_drafts": {"type": "object", "required": ["used", "index_bytes", "corpus_tokens"], "properties": {
      "used": {"type": "boolean"}, "index_bytes": {"type": "integer"}, "corpus_tokens": {"type": "integer"}}},
    "ranks": {"type": "array", "items": {"type": "object", "required": ["rank", "node", "pid", "last_progress_s"], "properties": {
      "rank": {"type": "integer"}, "node": {"type": "string"}, "pid": {"type": "integer"}, "last_progress_s": {"type": "number"}}}}}},
  "Cluster": {"type": "object", "required": ["state", "version", "requests", "drains", "replicas", "draft_nodes", "events"], "properties": {
    "state": {"type": "string", "enum": ["starting", "ready", "draining", "lost"]}, "version": {"type": "string"},
    "requests": {"type": "object", "required": ["running", "waiting", "max_queue", "clients"], "properties": {
      "running": {"type": "integer"}, "waiting": {"type": "integer"}, "max_queue": {"type": "integer"},
      "clients": {"type": "array", "items": {"type": "object", "required": ["client", "waiting", "sequences"], "properties": {
        "client": {"type": "string"}, "waiting": {"type": "integer"}, "sequences": {"type": "integer"}}}}}},
    "drains": {"type": "array", "items": {"type": "object", "required": ["target", "running", "seconds_left"], "properties": {
      "target": {"type": "string"}, "running": {"type": "integer"}, "seconds_left": {"type": ["number", "null"]}}}},
    "replicas": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
    "draft_nodes": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
    "events": {"type": "array", "items": {"type": "object", "required": ["time", "what"], "properties": {
      "time": {"type": "number"}, "what": {"type": "string"}}}}}},
  "DrainAnswer": {"type": "object", "required": ["target", "state", "running"], "properties": {
    "target": {"type": "string"}, "state": {"type": "string", "enum": ["starting", "ready", "draining", "lost"]},
    "running": {"type": "integer"}}},
  "CancelAnswer": {"type": "object", "required": ["request_id", "cancelled"], "properties": {
    "request_id": {"type": "string"}, "cancelled": {"type": "integer"}}},
  "Timeline": {"type": "object", "required": ["traceEvents"], "description": "In the format of Chrome's trace viewer.", "properties": {
    "traceEvents": {"type": "array", "items": {"type": "object"}}, "displayTimeUnit": {"type": "string"},
    "otherData": {"type": "object"}}},
  "OpenApi": {"type": "object", "required": ["openapi", "info", "paths", "components"], "properties": {
    "openapi": {"type": "string"}, "info": {"type": "object"}, "paths": {"type": "object"}, "components": {"type": "object"}}},
  "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
    "required": ["message", "type", "param", "code"], "properties": {"message": {"type": "string"}, "type": {"type": "string"},
    "param": {"type": ["string", "null"]}, "code": {"type": "string"}}}}}
})";

// The fields of a choice that completions and chats share.
constexpr char kChoice[] = R"({
  "index": {"type": "integer"}, "finish_reason": {"type": "string", "enum": ["stop", "length", "tool_calls"]},
  "stop_reason": {"type": ["string", "integer", "null"]}, "seed": {"type": "integer"}, "score": {"type": ["number", "null"]},
  "item": {"type": ["object", "null"], "required": ["id", "name"], "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "description": "With catalogue: the item that the choice is."},
  "joint_logprob": {"type": ["number", "null"]}, "token_ids": {"type": "array", "items": {"type": "integer"}},
  "prompt_token_ids": {"type": "array", "items": {"type": "integer"}}})";

struct ErrorRow {
  int status;
  const char* name;
  const char* codes;
  const char* header = nullptr;  // that every such error has
};
constexpr ErrorRow kErrors[] = {
    {400, "BadRequest",
     "invalid_json, missing_field, invalid_type, invalid_value, unknown_field, unsupported_field, "
     "unsupported_combination, conflicting_fields, context_length_exceeded, kv_capacity_exceeded, "
     "no_chat_template, invalid_header, invalid_body."},
    {401, "Unauthorized", "missing_api_key, invalid_api_key.", "WWW-Authenticate"},
    {403, "Forbidden", "admin_only."},
    {404, "NotFound", "model_not_found, unknown_node, unknown_request, unknown_route."},
    {405, "MethodNotAllowed", "method_not_allowed.", "Allow"},
    {408, "TooSlow", "client_too_slow."},
    {413, "BodyTooLarge", "body_too_large."},
    {414, "UriTooLong", "uri_too_long."},
    {415, "UnsupportedMediaType", "unsupported_media_type."},
    {417, "UnknownExpectation", "unknown_expectation."},
    {429, "Overloaded", "queue_full, queue_timeout, rate_limited.", "Retry-After"},
    {431, "HeadersTooLarge", "headers_too_large."},
    {500, "InternalError", "internal_error, reload_failed."},
    {503, "Unavailable",
     "no_replica, draining, replica_lost, too_many_connections, too_many_bodies, cancelled, "
     "catalogue_changed, trace_under_way. All but cancelled have Retry-After."},
    {504, "DeadlineExceeded", "deadline_exceeded."},
    {505, "HttpVersion", "unsupported_http_version."},
};

Json RefTo(const char* kind, const std::string& name) {
  return {{"$ref", absl::StrCat("#/components/", kind, "/", name)}};
}

Json TextSchema() { return {{"type", "string"}}; }

Json Header(const char* description) {
  return {{"description", description}, {"schema", TextSchema()}};
}

Json Body(const char* type, Json schema) {
  Json content;
  content[type]["schema"] = std::move(schema);
  return content;
}

Json Response(const std::string& description, Json content) {
  Json response;
  response["description"] = description;
  response["headers"]["X-Request-Id"] = Header("That of the request, else a new one.");
  response["content"] = std::move(content);
  return response;
}

const char* AnswerName(EndpointId id) {
  switch (id) {
    case EndpointId::kChat:
      return "ChatAnswer";
    case EndpointId::kResponses:
      return "ResponsesAnswer";
    case EndpointId::kMessages:
      return "MessagesAnswer";
    default:
      return "CompletionAnswer";
  }
}

Json Success(const Endpoint& endpoint) {
  const auto json = [](const char* description, const char* schema) {
    return Response(description, Body("application/json", RefTo("schemas", schema)));
  };
  const auto reads_fields = [](Json response) {
    response["headers"]["X-Coppice-Ignored"] =
        Header("The fields of the request that were ignored, if any.");
    return response;
  };
  switch (endpoint.id) {
    case EndpointId::kCompletions:
    case EndpointId::kChat:
    case EndpointId::kResponses:
    case EndpointId::kMessages: {
      Json response = json("The answer; with stream: true as events.", AnswerName(endpoint.id));
      response["content"]["text/event-stream"]["schema"] = TextSchema();
      return reads_fields(std::move(response));
    }
    case EndpointId::kTokenize:
      return reads_fields(json("The ids.", "TokenizeAnswer"));
    case EndpointId::kDetokenize:
      return reads_fields(json("The text.", "DetokenizeAnswer"));
    case EndpointId::kCountTokens:
      return reads_fields(json("The number.", "CountTokensAnswer"));
    case EndpointId::kTokenizerInfo:
      return json("The settings.", "TokenizerInfo");
    case EndpointId::kModels:
      return json("A list.", "ModelList");
    case EndpointId::kModel:
      return json("The model.", "Model");
    case EndpointId::kHealth:
      return json("The process answers.", "Health");
    case EndpointId::kReady:
      return json("Requests are served.", "Health");
    case EndpointId::kVersion:
      return json("The version.", "Version");
    case EndpointId::kMetrics:
      return Response("Prometheus text 0.0.4.", Body("text/plain", TextSchema()));
    case EndpointId::kOpenApi:
      return json("This document.", "OpenApi");
    case EndpointId::kCluster:
      return json("The state of the cluster.", "Cluster");
    case EndpointId::kDrain:
    case EndpointId::kUndrain:
      return json("Begun.", "DrainAnswer");
    case EndpointId::kReload:
      return json("What is served now.", "ReloadAnswer");
    case EndpointId::kCancel:
      return json("Ended.", "CancelAnswer");
    case EndpointId::kTimeline:
      return json("The timeline.", "Timeline");
    case EndpointId::kTrace:
      return json("The trace.", "Timeline");
    case EndpointId::kPage:
    case EndpointId::kDocs:
    case EndpointId::kIcon:
    case EndpointId::kAsk:
    case EndpointId::kWebFile:
      break;  // the document has no pages
  }
  return {};
}

// The errors of an endpoint. 405 is that of its path: another method was used.
std::vector<int> ErrorStatuses(const Endpoint& endpoint) {
  std::vector<int> statuses = {400, 405, 408, 414, 417, 431, 503, 505};  // of every connection
  const auto add = [&](std::initializer_list<int> more) { statuses.insert(statuses.end(), more); };
  if (endpoint.access != Access::kOpen || endpoint.id == EndpointId::kMetrics) add({401});
  if (endpoint.access == Access::kAdmin) add({403});
  if (endpoint.takes_body()) add({404, 413, 415});
  switch (endpoint.id) {
    case EndpointId::kCompletions:
    case EndpointId::kChat:
    case EndpointId::kResponses:
    case EndpointId::kMessages:
      add({429, 500, 504});
      break;
    case EndpointId::kCountTokens:
    case EndpointId::kTokenize:
    case EndpointId::kDetokenize:
      add({429, 500});  // a large body waits for its turn
      break;
    case EndpointId::kModel:
    case EndpointId::kCancel:
    case EndpointId::kTimeline:
      add({404});
      break;
    case EndpointId::kReload:
      add({500});
      break;
    default:
      break;
  }
  return statuses;
}

Json ChoiceSchema(const char* text, Json text_schema, const char* logprobs) {
  Json choice;
  choice["type"] = "object";
  choice["required"] = {"index", "finish_reason", "stop_reason", "seed",
                        "score", "joint_logprob", "logprobs",    text};
  choice["properties"] = Json::parse(kChoice);
  choice["properties"]["logprobs"]["anyOf"] =
      Json::array({RefTo("schemas", logprobs), {{"type", "null"}}});
  choice["properties"][text] = std::move(text_schema);
  return choice;
}

Json AnswerSchema(const char* object, const char* choice) {
  Json schema;
  schema["type"] = "object";
  schema["required"] = {"id",      "object", "created", "model", "system_fingerprint",
                        "choices", "usage",  "timings"};
  Json& properties = schema["properties"];
  properties["id"] = TextSchema();
  properties["object"] = {{"type", "string"}, {"const", object}};
  properties["created"]["type"] = "integer";
  properties["model"] = TextSchema();
  properties["system_fingerprint"] = TextSchema();
  properties["choices"] = {{"type", "array"}, {"items", RefTo("schemas", choice)}};
  const Json number = {{"type", "number"}};
  properties["beam_mass"]["anyOf"] = Json::array({number, {{"type", "array"}, {"items", number}}});
  properties["catalogue"] = RefTo("schemas", "Catalogue");
  properties["usage"] = RefTo("schemas", "Usage");
  properties["timings"] = RefTo("schemas", "Timings");
  properties["trace"] = {{"type", "array"}, {"items", RefTo("schemas", "Round")}};
  return schema;
}

}  // namespace

Json AnswerSchemas() {
  Json schemas = Json::parse(kAnswers);
  const Json message = {
      {"type", "object"},
      {"required", {"role", "content"}},
      {"properties",
       {{"role", {{"type", "string"}, {"const", "assistant"}}},
        {"content", {{"type", {"string", "null"}}}},
        {"reasoning_content", TextSchema()},
        {"tool_calls", {{"type", "array"}, {"items", RefTo("schemas", "ToolCall")}}}}}};
  schemas["CompletionChoice"] = ChoiceSchema("text", TextSchema(), "CompletionLogprobs");
  schemas["ChatChoice"] = ChoiceSchema("message", message, "ChatLogprobs");
  schemas["CompletionAnswer"] = AnswerSchema("text_completion", "CompletionChoice");
  schemas["ChatAnswer"] = AnswerSchema("chat.completion", "ChatChoice");
  return schemas;
}

Json ErrorResponses() {
  Json responses;
  for (const ErrorRow& row : kErrors) {
    Json response = Response(row.codes, Body("application/json", RefTo("schemas", "Error")));
    if (row.header != nullptr) {
      response["headers"][row.header] = Header("");
      response["headers"][row.header]["required"] = true;
    }
    responses[row.name] = std::move(response);
  }
  return responses;
}

Json ResponsesOf(const Endpoint& endpoint) {
  Json responses;
  const bool accepted = endpoint.id == EndpointId::kDrain || endpoint.id == EndpointId::kUndrain;
  responses[accepted ? "202" : "200"] = Success(endpoint);
  if (endpoint.id == EndpointId::kDrain) {  // after `wait`, when nothing is left
    responses["200"] = Success(endpoint);
    responses["200"]["description"] = "Over: nothing runs on the target.";
  }
  const std::vector<int> statuses = ErrorStatuses(endpoint);
  for (const ErrorRow& row : kErrors) {
    if (std::find(statuses.begin(), statuses.end(), row.status) != statuses.end())
      responses[absl::StrCat(row.status)] = RefTo("responses", row.name);
  }
  return responses;
}

}  // namespace coppice::coordinator
