#include "coordinator/api/endpoints.h"

#include <cctype>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"

namespace coppice::coordinator {
namespace {

constexpr Endpoint kEndpoints[] = {
    {EndpointId::kCompletions, "POST", "/v1/completions", "completions", Access::kUser,
     "Continues a prompt; as JSON or as server-sent events."},
    {EndpointId::kChat, "POST", "/v1/chat/completions", "chat_completions", Access::kUser,
     "Answers the messages of a chat; as JSON or as server-sent events."},
    {EndpointId::kResponses, "POST", "/v1/responses", "responses", Access::kUser,
     "The same in the form of OpenAI's Responses."},
    {EndpointId::kMessages, "POST", "/v1/messages", "messages", Access::kUser,
     "The same in the form of Anthropic's Messages."},
    {EndpointId::kCountTokens, "POST", "/v1/messages/count_tokens", "count_tokens", Access::kUser,
     "How many tokens the messages of such a request have."},
    {EndpointId::kTokenize, "POST", "/tokenize", "tokenize", Access::kUser,
     "The token ids of a text or of the messages of a chat."},
    {EndpointId::kDetokenize, "POST", "/detokenize", "detokenize", Access::kUser,
     "The text of token ids."},
    {EndpointId::kTokenizerInfo, "GET", "/tokenizer_info", "tokenizer_info", Access::kUser,
     "The model's tokenizer_config.json, with the chat template that is used."},
    {EndpointId::kModels, "GET", "/v1/models", "models", Access::kUser,
     "The served names of the model, each with the limits and methods for requests."},
    {EndpointId::kModel, "GET", "/v1/models/{id}", "models", Access::kUser, "One of them."},
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
    {EndpointId::kReload, "POST", "/admin/reload", "reload", Access::kAdmin,
     "Keys, certificate and catalogues are read again; the answer has the catalogues."},
    {EndpointId::kCancel, "DELETE", "/admin/requests/{request_id}", "cancel", Access::kAdmin,
     "Ends the requests with this X-Request-Id."},
    {EndpointId::kTimeline, "GET", "/admin/timelines/{request_id}", "timeline", Access::kAdmin,
     "The timeline of a request, as Chrome trace JSON; of a running request "
     "or one of the last."},
    {EndpointId::kTrace, "GET", "/debug/trace", "trace", Access::kAdmin,
     "Where the time of all replicas goes in the next `?seconds=N`, as Chrome trace JSON."},
    {EndpointId::kPage, "GET", "/", "page", Access::kOpen,
     "A page for people: ask, and see the drafts. A client that asks for JSON gets a list of "
     "addresses."},
    {EndpointId::kDocs, "GET", "/docs", "docs", Access::kOpen,
     "`/openapi.json` as a page for people."},
    {EndpointId::kAsk, "POST", "/ask", "ask", Access::kUser,
     "The form of that page, for browsers without JavaScript; the answer is a page."},
    {EndpointId::kIcon, "GET", "/favicon.ico", "icon", Access::kOpen,
     "The icon that browsers show beside an address, as SVG."},
    {EndpointId::kWebFile, "GET", "/web/{file}", "web", Access::kOpen, "The files of these pages."},
};

// Parts of the OpenAI API, and of servers that extend it, for other uses of models.
constexpr const char* kNotServed[] = {
    "/embeddings",  "/rerank",      "/score",      "/classify", "/pooling",
    "/audio",       "/images",      "/files",      "/batches",  "/messages/batches",
    "/moderations", "/fine_tuning", "/assistants", "/realtime"};

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

std::optional<AnswerForm> FormOf(EndpointId id) {
  switch (id) {
    case EndpointId::kCompletions:
      return AnswerForm::kCompletion;
    case EndpointId::kChat:
      return AnswerForm::kChat;
    case EndpointId::kResponses:
      return AnswerForm::kResponse;
    case EndpointId::kMessages:
      return AnswerForm::kMessage;
    case EndpointId::kAsk:
      return AnswerForm::kPage;
    default:
      return std::nullopt;
  }
}

ErrorForm ErrorFormOf(EndpointId id) {
  switch (id) {
    case EndpointId::kMessages:
    case EndpointId::kCountTokens:
      return ErrorForm::kAnthropic;
    case EndpointId::kAsk:
      return ErrorForm::kPage;
    default:
      return ErrorForm::kOpenAi;
  }
}

const char* RouteOf(AnswerForm form) {
  for (const Endpoint& endpoint : kEndpoints) {
    if (FormOf(endpoint.id) == form) return endpoint.path;
  }
  return "";
}

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

std::string NoEndpointText(absl::string_view path) {
  for (const absl::string_view other : kNotServed) {
    if (absl::StartsWith(absl::StripPrefix(path, "/v1"), other))
      return "; this server has text completions and chats only, see GET /openapi.json";
  }
  std::vector<std::string> known;
  for (const Endpoint& endpoint : kEndpoints) {
    const bool told = !endpoint.web() || endpoint.id == EndpointId::kDocs;
    if (told && !absl::StrContains(endpoint.path, '{')) known.push_back(endpoint.path);
  }
  return DidYouMean(path, known);
}

std::string PathArgument(const Endpoint& endpoint, absl::string_view path) {
  return Unescaped(path.substr(absl::string_view(endpoint.path).find('{')));
}

}  // namespace coppice::coordinator
