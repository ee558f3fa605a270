#include "coordinator/api/openapi.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/api/openapi_schemas.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

Json Ref(const std::string& schema) { return {{"$ref", "#/components/schemas/" + schema}}; }

Json Content(const char* type, Json schema) {
  Json content;
  content[type]["schema"] = std::move(schema);
  return content;
}

Json Response(const char* description, Json content) {
  Json response;
  response["description"] = description;
  response["headers"]["X-Request-Id"] = {{"description", "That of the request, else a new one."},
                                         {"schema", {{"type", "string"}}}};
  response["content"] = std::move(content);
  return response;
}

Json Success(const Endpoint& endpoint) {
  switch (endpoint.id) {
    case EndpointId::kCompletions:
    case EndpointId::kChat: {
      const bool chat = endpoint.id == EndpointId::kChat;
      Json content = Content("application/json", Ref(chat ? "ChatAnswer" : "CompletionAnswer"));
      content["text/event-stream"]["schema"] = {{"type", "string"}};
      return Response("The answer; with stream: true as events.", std::move(content));
    }
    case EndpointId::kMetrics:
      return Response("Prometheus text 0.0.4.", Content("text/plain", {{"type", "string"}}));
    case EndpointId::kTokenize:
      return Response("The ids.", Content("application/json", Ref("TokenizeAnswer")));
    case EndpointId::kDetokenize:
      return Response("The text.", Content("application/json", Ref("DetokenizeAnswer")));
    case EndpointId::kModels:
      return Response("A list.", Content("application/json", Ref("ModelList")));
    case EndpointId::kModel:
      return Response("The model.", Content("application/json", Ref("Model")));
    default:
      return Response("As docs/api.md describes.",
                      Content("application/json", {{"type", "object"}}));
  }
}

const char* RequestSchema(EndpointId id) {
  switch (id) {
    case EndpointId::kCompletions:
      return "CompletionRequest";
    case EndpointId::kChat:
      return "ChatRequest";
    case EndpointId::kTokenize:
      return "TokenizeRequest";
    case EndpointId::kDetokenize:
      return "DetokenizeRequest";
    case EndpointId::kDrain:
      return "DrainRequest";
    default:
      return "UndrainRequest";
  }
}

const char* AccessWord(const Endpoint& endpoint) {
  switch (endpoint.access) {
    case Access::kUser:
      return "user";
    case Access::kAdmin:
      return "admin";
    case Access::kOpen:
      break;
  }
  return endpoint.id == EndpointId::kMetrics ? "none; user with `--metrics_require_key`" : "none";
}

Json Operation(const Endpoint& endpoint) {
  Json operation;
  operation["operationId"] =
      absl::StrCat(endpoint.handler, endpoint.id == EndpointId::kModel ? "_one" : "");
  operation["summary"] = endpoint.summary;
  // {}: without key files, no key is needed.
  operation["security"] = Json::array({Json::object()});
  if (endpoint.access != Access::kOpen) operation["security"].push_back({{"key", Json::array()}});
  const absl::string_view path = endpoint.path;
  const size_t open = path.find('{');
  if (open != absl::string_view::npos) {
    const std::string name(path.substr(open + 1, path.find('}') - open - 1));
    operation["parameters"] = Json::array(
        {{{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (endpoint.takes_body()) {
    operation["requestBody"]["required"] = true;
    operation["requestBody"]["content"] =
        Content("application/json", Ref(RequestSchema(endpoint.id)));
  }
  const bool accepted = endpoint.id == EndpointId::kDrain || endpoint.id == EndpointId::kUndrain;
  operation["responses"][accepted ? "202" : "200"] = Success(endpoint);
  operation["responses"]["default"] =
      Response("An error.", Content("application/json", Ref("Error")));
  return operation;
}

std::string Lower(absl::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

std::string OpenApiJson(const ApiLimits& limits, const std::string& version) {
  Json json;
  json["openapi"] = "3.1.0";
  json["info"]["title"] = "Coppice";
  json["info"]["version"] = version;
  json["info"]["description"] =
      "Speculative beam decoding behind the API of OpenAI. A field at null counts as absent; an "
      "unknown field, and one that would have no effect, is refused.";
  for (const Endpoint& endpoint : Endpoints())
    json["paths"][endpoint.path][Lower(endpoint.method)] = Operation(endpoint);
  json["components"]["schemas"] = Schemas(limits);
  json["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
  return json.dump();
}

std::string EndpointTable() {
  std::string table = "| endpoint | key | answer |\n|---|---|---|\n";
  for (const Endpoint& endpoint : Endpoints()) {
    absl::StrAppend(&table, "| `", endpoint.method, " ", endpoint.path, "` | ",
                    AccessWord(endpoint), " | ", endpoint.summary, " |\n");
  }
  return table;
}

}  // namespace coppice::coordinator
