#include "coordinator/api/openapi.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/api/openapi_answers.h"
#include "coordinator/api/openapi_forms.h"
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

const char* RequestSchema(EndpointId id) {
  switch (id) {
    case EndpointId::kCompletions:
      return "CompletionRequest";
    case EndpointId::kChat:
      return "ChatRequest";
    case EndpointId::kResponses:
      return "ResponsesRequest";
    case EndpointId::kMessages:
      return "MessagesRequest";
    case EndpointId::kCountTokens:
      return "CountTokensRequest";
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

// The group of the endpoint in a generated client or page.
const char* Tag(const Endpoint& endpoint) {
  switch (endpoint.id) {
    case EndpointId::kCompletions:
    case EndpointId::kChat:
    case EndpointId::kResponses:
    case EndpointId::kMessages:
      return "completions";
    case EndpointId::kCountTokens:
    case EndpointId::kTokenize:
    case EndpointId::kDetokenize:
    case EndpointId::kTokenizerInfo:
      return "tokens";
    case EndpointId::kModels:
    case EndpointId::kModel:
      return "models";
    default:
      return endpoint.access == Access::kAdmin ? "administration" : "server";
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
  operation["operationId"] = endpoint.id == EndpointId::kModel ? "model" : endpoint.handler;
  operation["tags"] = {Tag(endpoint)};
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
  if (endpoint.id == EndpointId::kTrace) {
    operation["parameters"] = Json::array(
        {{{"name", "seconds"},
          {"in", "query"},
          {"schema",
           {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 60}, {"default", 1}}}}});
  }
  if (endpoint.takes_body()) {
    operation["requestBody"]["required"] = true;
    operation["requestBody"]["content"] =
        Content("application/json", Ref(RequestSchema(endpoint.id)));
  }
  operation["responses"] = ResponsesOf(endpoint);
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
      "Speculative beam decoding behind the API of OpenAI. A field at null counts as absent. "
      "Unknown "
      "fields and hints are ignored and named in the header X-Coppice-Ignored.";
  for (const Endpoint& endpoint : Endpoints()) {
    if (endpoint.web()) continue;  // for people, not for clients
    json["paths"][endpoint.path][Lower(endpoint.method)] = Operation(endpoint);
  }
  json["components"]["schemas"] = RequestSchemas(limits);
  json["components"]["schemas"].update(
      FormRequestSchemas(json["components"]["schemas"]["ChatRequest"]));
  json["components"]["schemas"].update(AnswerSchemas());
  json["components"]["schemas"].update(FormAnswerSchemas());
  json["components"]["responses"] = ErrorResponses();
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
