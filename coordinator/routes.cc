#include "coordinator/routes.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/program.h"

namespace coppice::coordinator {
namespace {

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr char kModels[] = "/v1/models";
constexpr char kModelPrefix[] = "/v1/models/";

// The method of a known path, nullptr for an unknown one.
const char* MethodOf(const std::string& path) {
  if (path == kCompletions || path == kChat) return "POST";
  for (const char* known : {kModels, "/health", "/ready", "/version", "/metrics", "/cluster"}) {
    if (path == known) return "GET";
  }
  return path.rfind(kModelPrefix, 0) == 0 ? "GET" : nullptr;
}

const char* HandlerOf(const std::string& path) {
  if (path == kCompletions) return "completions";
  if (path == kChat) return "chat_completions";
  if (path.rfind(kModels, 0) == 0) return "models";
  if (path == "/health") return "health";
  if (path == "/ready") return "ready";
  if (path == "/version") return "version";
  if (path == "/metrics") return "metrics";
  return path == "/cluster" ? "cluster" : "other";
}

// No type, application/json, or another application type whose name ends in json, such as
// application/problem+json.
bool IsJson(const std::string& content_type) {
  absl::string_view type = content_type;
  type = absl::StripAsciiWhitespace(type.substr(0, type.find(';')));
  return type.empty() || (absl::StartsWithIgnoreCase(type, "application/") &&
                          absl::EndsWithIgnoreCase(type, "json"));
}

HttpReply JsonReply(std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  return reply;
}

std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && isxdigit(text[i + 1]) && isxdigit(text[i + 2])) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The names, written so that they are safe in a header line.
std::string HeaderList(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    absl::StrAppend(&list, list.empty() ? "" : ", ");
    for (const char c : name)
      list += isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ? c : '?';
  }
  return list;
}

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::optional<HttpReply> Routes::CheckHead(const HttpRequest& request) {
  const char* method = MethodOf(request.path);
  if (method == nullptr) {
    return ErrorReply(
        {404, "unknown_route", absl::StrCat("there is no ", request.path.substr(0, 200))});
  }
  if (request.method != method) {
    HttpReply reply =
        ErrorReply({405, "method_not_allowed",
                    absl::StrCat(request.path.substr(0, 200), " takes ", method, " only")});
    reply.headers.emplace_back("Allow", method);
    return reply;
  }
  if (request.method == "POST" && !IsJson(request.content_type)) {
    return ErrorReply(
        {415, "unsupported_media_type",
         "the body must be JSON: send the header Content-Type: application/json (curl: -H "
         "'Content-Type: application/json'; without it, -d sends a form)"});
  }
  return std::nullopt;
}

void Routes::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const std::string& path = request.path;
  if (path == kCompletions || path == kChat) return Complete(request, exchange);
  if (path == kModels) return exchange->Reply(Models());
  if (path == "/health") return exchange->Reply(JsonReply("{\"status\":\"ok\"}"));
  if (path == "/ready") return exchange->Reply(Ready());
  if (path == "/cluster") return exchange->Reply(Cluster());
  if (path == "/version") {
    nlohmann::ordered_json json;
    json["version"] = kVersion;
    json["commit"] = COPPICE_COMMIT;
    json["build"] = COPPICE_BUILD;
    return exchange->Reply(JsonReply(json.dump()));
  }
  if (path == "/metrics") {
    HttpReply reply = JsonReply(context_.metrics->Text());
    reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return exchange->Reply(std::move(reply));
  }
  exchange->Reply(Model(Unescaped(path.substr(sizeof(kModelPrefix) - 1))));
}

void Routes::Complete(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
  const double arrival_s = context_.clock->NowSeconds();
  const int64_t now_unix = UnixNow();
  std::variant<GenerateRequest, ApiError> parsed =
      request.path == kChat
          ? ParseChatCompletion(request.body, request.timeout_header, context_.api, now_unix)
          : ParseCompletion(request.body, request.timeout_header, context_.api);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
    context_.metrics->RequestRefused(error->code);
    return exchange->Reply(ErrorReply(*error));
  }
  GenerateRequest& generate = std::get<GenerateRequest>(parsed);
  if (!generate.ignored_fields.empty())
    exchange->AddHeader("X-Coppice-Ignored", HeaderList(generate.ignored_fields));
  const bool stream = generate.stream;
  const Request::Origin origin{request.request_id, context_.api.model_name, arrival_s, now_unix};
  auto started =
      std::make_shared<Request>(std::move(generate), origin, context_.api.tokenizer, exchange);
  exchange->OnDisconnect(
      [dispatcher = context_.dispatcher, weak = std::weak_ptr<Request>(started)] {
        if (const std::shared_ptr<Request> alive = weak.lock()) dispatcher->Disconnected(alive);
      });
  context_.dispatcher->Submit(started);
  if (stream && !started->ended()) exchange->ExpectStream();
}

int Routes::MaxModelLen() const {
  const std::vector<const Node*> replicas = context_.registry->Replicas();
  if (replicas.empty()) return context_.max_model_len;
  const int of_model = replicas.front()->registration.model().max_positions();
  return context_.max_model_len > 0 ? std::min(of_model, context_.max_model_len) : of_model;
}

ModelCard Routes::Card() const {
  return {context_.api.model_name, context_.started_unix, MaxModelLen(),
          context_.api.chat != nullptr};
}

HttpReply Routes::Models() const { return JsonReply(ModelListJson(Card(), context_.api.limits)); }

HttpReply Routes::Model(const std::string& id) const {
  if (id != context_.api.model_name) {
    return ErrorReply(
        {404, "model_not_found", "model is not served here, see GET /v1/models", "model"});
  }
  return JsonReply(ModelJson(Card(), context_.api.limits));
}

HttpReply Routes::Ready() const {
  if (context_.dispatcher->draining())
    return ErrorReply({503, "draining", "the server is draining", "", 5});
  if (!context_.registry->ReadyReplicas().empty()) return JsonReply("{\"status\":\"ready\"}");
  std::string lost;
  for (const Node* node : context_.registry->Replicas()) {
    if (node->why_lost.empty()) continue;
    absl::StrAppend(&lost, lost.empty() ? "no replica is ready: " : "; ", node->id, " ",
                    node->why_lost);
  }
  return ErrorReply({503, "no_replica", lost.empty() ? "no replica has joined yet" : lost, "", 1});
}

HttpReply Routes::Cluster() const {
  return JsonReply(
      ClusterJson(*context_.registry, *context_.dispatcher, context_.clock->NowSeconds()));
}

void Routes::Observe(const HttpRequest& request, int status, double seconds) {
  context_.metrics->Http(HandlerOf(request.path), request.method, status, seconds);
}

void Routes::SetConnections(int open) { context_.metrics->SetConnections(open); }

}  // namespace coppice::coordinator
