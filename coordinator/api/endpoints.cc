#include "coordinator/api/endpoints.h"

#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

constexpr Endpoint kEndpoints[] = {
    {EndpointId::kCompletions, "POST", "/v1/completions", "completions", Access::kUser,
     "Continues a prompt; as JSON or as server-sent events."},
    {EndpointId::kChat, "POST", "/v1/chat/completions", "chat_completions", Access::kUser,
     "Answers the messages of a chat; as JSON or as server-sent events."},
    {EndpointId::kTokenize, "POST", "/tokenize", "tokenize", Access::kUser,
     "The token ids of a text or of the messages of a chat."},
    {EndpointId::kDetokenize, "POST", "/detokenize", "detokenize", Access::kUser,
     "The text of token ids."},
    {EndpointId::kModels, "GET", "/v1/models", "models", Access::kUser,
     "The served model in a list, with the limits and methods for requests."},
    {EndpointId::kModel, "GET", "/v1/models/{id}", "models", Access::kUser,
     "The served model, with the limits and methods for requests."},
    {EndpointId::kHealth, "GET", "/health", "health", Access::kOpen,
     "200 while the process answers, whatever the state of the cluster: use it for liveness."},
    {EndpointId::kReady, "GET", "/ready", "ready", Access::kOpen,
     "200 when at least one replica is ready and the server is not draining, else 503 with the "
     "reason."},
    {EndpointId::kVersion, "GET", "/version", "version", Access::kOpen,
     "Version, commit and build type of the coordinator."},
    {EndpointId::kMetrics, "GET", "/metrics", "metrics", Access::kOpen,
     "Metrics of the whole cluster as Prometheus text 0.0.4."},
    {EndpointId::kOpenApi, "GET", "/openapi.json", "openapi", Access::kOpen,
     "This API as an OpenAPI 3.1 document."},
    {EndpointId::kCluster, "GET", "/cluster", "cluster", Access::kAdmin,
     "Replicas, ranks, draft nodes, KV use, queue, recent events."},
    {EndpointId::kDrain, "POST", "/admin/drain", "drain", Access::kAdmin,
     "The target takes no new work and finishes what it holds."},
    {EndpointId::kUndrain, "POST", "/admin/undrain", "undrain", Access::kAdmin,
     "The target takes work again."},
    {EndpointId::kCancel, "DELETE", "/admin/requests/{request_id}", "cancel", Access::kAdmin,
     "Ends the requests with this X-Request-Id."},
    {EndpointId::kTimeline, "GET", "/admin/timelines/{request_id}", "timeline", Access::kAdmin,
     "The timeline of a request, as Chrome trace JSON; of a running request "
     "or one of the last."},
};

std::string Unescaped(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::SimpleHexAtoi(text.substr(i + 1, 2), &code) &&
        std::isxdigit(static_cast<unsigned char>(text[i + 1]))) {
      plain += static_cast<char>(code);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

absl::Span<const Endpoint> Endpoints() { return kEndpoints; }

const Endpoint* FindEndpoint(absl::string_view path) {
  for (const Endpoint& endpoint : kEndpoints) {
    const absl::string_view known = endpoint.path;
    const size_t argument = known.find('{');
    if (argument == absl::string_view::npos ? path == known
                                            : absl::StartsWith(path, known.substr(0, argument))) {
      return &endpoint;
    }
  }
  return nullptr;
}

std::string AllowedMethods(const Endpoint* endpoint) {
  if (endpoint == nullptr) return "GET, HEAD, POST, DELETE, OPTIONS";
  return absl::StrCat(endpoint->method, endpoint->gets() ? ", HEAD" : "", ", OPTIONS");
}

std::string PathArgument(const Endpoint& endpoint, absl::string_view path) {
  return Unescaped(path.substr(absl::string_view(endpoint.path).find('{')));
}

}  // namespace coppice::coordinator
