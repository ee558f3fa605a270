#include "coordinator/routes.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/program.h"
#include "coordinator/api/format_fields.h"
#include "coordinator/api/openapi.h"
#include "coordinator/api/served_models.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/http_head.h"
#include "coordinator/request/request_log.h"

namespace coppice::coordinator {
namespace {

// Bodies with at least this many bytes are read by another thread. So are bodies that may have a
// format, which takes up to a second to read, however short it is. See docs/decisions.md.
constexpr size_t kLargeBody = 16 << 10;

// Parsing a format takes at least as long as parsing this many bytes of text.
constexpr size_t kFormatBytes = 64 << 10;

// No type, application/json, or another application type whose name ends in json, such as
// application/problem+json.
bool IsJson(absl::string_view content_type) {
  const absl::string_view type = MediaType(content_type);
  return type.empty() || (absl::StartsWithIgnoreCase(type, "application/") &&
                          absl::EndsWithIgnoreCase(type, "json"));
}

HttpReply JsonReply(std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  return reply;
}

bool IsStandardMethod(absl::string_view method) {
  for (const char* known :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY"}) {
    if (method == known) return true;
  }
  return false;  // CONNECT too: the server opens no tunnels
}

// The answer to OPTIONS; http_session adds what web pages of other origins may do.
HttpReply Allowed(const Endpoint* endpoint) {
  HttpReply reply;
  reply.status = 204;
  reply.headers.emplace_back("Allow", AllowedMethods(endpoint));
  return reply;
}

uint64_t RandomBits() {
  static std::mt19937_64 engine(std::random_device{}());  // event-loop thread
  return engine();
}

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::optional<HttpReply> Routes::CheckHead(HttpRequest* request) {
  request->trace = StartSpan(request->traceparents, request->tracestates, RandomBits);
  if (!IsStandardMethod(request->method)) {
    return ErrorReply({501, "unknown_method",
                       absl::StrCat("the server does not know the method ",
                                    absl::string_view(request->method).substr(0, 40))});
  }
  const Endpoint* endpoint = FindEndpoint(request->path);
  if (endpoint != nullptr) request->error_form = ErrorFormOf(endpoint->id);
  const auto refuse = [request](const ApiError& error) {
    return ErrorReply(error, request->error_form);
  };
  const bool options = request->method == "OPTIONS";
  if (options && (endpoint != nullptr || request->path == "*")) return Allowed(endpoint);
  if (endpoint == nullptr) {
    return ErrorReply({404, "unknown_route",
                       absl::StrCat("there is no ", request->path.substr(0, 200),
                                    NoEndpointText(request->path))});
  }
  if (request->method != endpoint->method && !(request->method == "HEAD" && endpoint->gets())) {
    HttpReply reply =
        refuse({405, "method_not_allowed",
                absl::StrCat(request->path.substr(0, 200), " takes ", endpoint->method, " only")});
    reply.headers.emplace_back("Allow", AllowedMethods(endpoint));
    return reply;
  }
  const bool closed = endpoint->id == EndpointId::kMetrics && context_.metrics_require_key;
  const Access access = closed ? Access::kUser : endpoint->access;
  if (auto error = context_.keys->Check(*request, access, &request->caller)) return refuse(*error);
  request->weight = context_.keys->WeightOf(request->caller);
  if (endpoint->takes_body() && !IsGzipCoding(request->content_encoding)) {
    HttpReply reply = refuse(
        {415, "unsupported_media_type", "Content-Encoding: only gzip and identity are supported"});
    reply.headers.emplace_back("Accept-Encoding", "gzip, identity");
    return reply;
  }
  if (endpoint->id == EndpointId::kAsk) {
    if (auto error = web_pages_.CheckForm(*request)) return refuse(*error);
  } else if (endpoint->takes_body() && !IsJson(request->content_type)) {
    return refuse(
        {415, "unsupported_media_type",
         "the body must be JSON: send the header Content-Type: application/json (curl: -H "
         "'Content-Type: application/json'; without it, -d sends a form)"});
  }
  if (auto error = CheckRate(*endpoint, *request)) return refuse(*error);
  return std::nullopt;
}

std::optional<ApiError> Routes::CheckRate(const Endpoint& endpoint, const HttpRequest& request) {
  if (!FormOf(endpoint.id)) return std::nullopt;
  const int wait_s = context_.rate->Take(request.caller, context_.clock->NowSeconds());
  if (wait_s == 0) return std::nullopt;
  context_.metrics->RequestRefused("rate_limited");
  const ApiError error{429, "rate_limited",
                       "this key has sent too many requests in the last minute", "", wait_s};
  LogRefusal(request, error, context_.dispatcher->options().log_requests);
  return error;
}

void Routes::Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const Endpoint& endpoint = *FindEndpoint(request.path);
  switch (endpoint.id) {
    case EndpointId::kCompletions:
    case EndpointId::kChat:
    case EndpointId::kResponses:
    case EndpointId::kMessages:
    case EndpointId::kAsk:
    case EndpointId::kCountTokens:
    case EndpointId::kTokenize:
    case EndpointId::kDetokenize:
      return ReadBody(endpoint.id, std::move(request), std::move(exchange));
    default:
      break;
  }
  if (endpoint.takes_body()) {
    if (const std::optional<ApiError> error = DecodeBody(context_.max_body_bytes, &request))
      return exchange->Reply(ErrorReply(*error));
  }
  if (endpoint.id == EndpointId::kDrain) return context_.operations->Drain(request.body, exchange);
  if (endpoint.id == EndpointId::kTrace) return context_.trace->Begin(request.target, exchange);
  exchange->Reply(Answer(endpoint, request));
}

HttpReply Routes::Answer(const Endpoint& endpoint, const HttpRequest& request) {
  switch (endpoint.id) {
    case EndpointId::kModels:
      return Models();
    case EndpointId::kModel:
      return Model(PathArgument(endpoint, request.path));
    case EndpointId::kHealth:
      return JsonReply("{\"status\":\"ok\"}");
    case EndpointId::kReady:
      return Ready();
    case EndpointId::kVersion:
      return Version();
    case EndpointId::kMetrics:
      return MetricsText();
    case EndpointId::kCluster:
      return Cluster();
    case EndpointId::kUndrain:
      return context_.operations->Undrain(request.body);
    case EndpointId::kReload:
      return Reload();
    case EndpointId::kCancel:
      return context_.operations->Cancel(PathArgument(endpoint, request.path));
    case EndpointId::kOpenApi:
      return JsonReply(OpenApiJson(context_.api.limits, kVersion));
    case EndpointId::kTimeline:
      return RequestTimeline(PathArgument(endpoint, request.path));
    case EndpointId::kTokenizerInfo:
      return JsonReply(context_.tokenizer_info);
    case EndpointId::kPage:
    case EndpointId::kDocs:
    case EndpointId::kIcon:
    case EndpointId::kWebFile:
      return web_pages_.Answer(endpoint, request);
    case EndpointId::kCompletions:
    case EndpointId::kChat:
    case EndpointId::kResponses:
    case EndpointId::kMessages:
    case EndpointId::kAsk:
    case EndpointId::kCountTokens:
    case EndpointId::kTokenize:
    case EndpointId::kDetokenize:
    case EndpointId::kDrain:
    case EndpointId::kTrace:
      break;
  }
  return ErrorReply({404, "unknown_route", "not here"});
}

HttpReply Routes::RequestTimeline(const std::string& request_id) const {
  std::string timeline = context_.dispatcher->FindTimeline(request_id);
  if (!timeline.empty()) return JsonReply(std::move(timeline));
  return ErrorReply({404, "unknown_request",
                     "neither a running request nor one of the last has this X-Request-Id"});
}

HttpReply Routes::Version() const {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["commit"] = COPPICE_COMMIT;
  json["build"] = COPPICE_BUILD;
  return JsonReply(json.dump());
}

HttpReply Routes::MetricsText() const {
  context_.dispatcher->UpdateGauges();
  HttpReply reply = JsonReply(context_.metrics->Text());
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

void Routes::ReadBody(EndpointId endpoint, HttpRequest request,
                      std::shared_ptr<HttpExchange> exchange) {
  const auto pending = std::make_shared<PendingBody>();
  pending->api = context_.api;
  pending->api.max_model_len = LenOf(context_.registry->ReadyReplicas());
  pending->api.model_vocab = ModelVocab();
  pending->endpoint = endpoint;
  pending->request = std::move(request);
  pending->client = ClientOf(pending->request);
  pending->shown_model_len = ShownLen();
  pending->arrival_s = context_.clock->NowSeconds();
  pending->now_unix = UnixNow();
  pending->exchange = std::move(exchange);
  const std::string& body = pending->request.body;
  pending->max_body_bytes = context_.max_body_bytes;
  const bool gzip = *IsGzipCoding(pending->request.content_encoding);
  const bool format = pending->completes() && (gzip || MayHaveFormat(body));
  if (body.size() < kLargeBody && !gzip && !format) {
    Read(pending.get());
    return Finish(pending.get(), /*admitted=*/false);
  }
  if (const std::optional<ApiError> error = context_.dispatcher->BeginParsing(pending))
    return Refuse(*pending, *error);
  pending->exchange->OnDisconnect([this, weak = std::weak_ptr<PendingBody>(pending)] {
    if (const std::shared_ptr<PendingBody> alive = weak.lock()) Gone(alive.get());
  });
  const uint64_t job = context_.jobs->Post(
      pending->client,
      std::max({body.size(), gzip ? GunzippedSize(body) : 0, format ? kFormatBytes : 0}),
      [pending] {
        if (!pending->abandoned) Read(pending.get());
      },
      [this, pending] {
        context_.dispatcher->EndParsing(pending);
        if (!pending->abandoned) Finish(pending.get(), /*admitted=*/true);
      });
  pending->skip = [this, job] { context_.jobs->Skip(job); };
}

// The client has gone. The request may not be parsed yet, so its log line has defaults.
void Routes::Gone(PendingBody* pending) {
  if (!pending->Abandon() || !pending->completes()) return;
  GenerateRequest unread;
  unread.model = context_.api.model_names.at(0);
  unread.form = *FormOf(pending->endpoint);
  context_.dispatcher->Disconnected(MakeRequest(std::move(unread), *pending));
}

void Routes::Refuse(const PendingBody& pending, const ApiError& error) {
  if (pending.completes()) {
    context_.metrics->RequestRefused(error.code);
    LogRefusal(pending.request, error, context_.dispatcher->options().log_requests);
  }
  pending.exchange->Reply(ErrorReply(error, pending.request.error_form));
}

// Clients without keys take turns by their addresses.
Client Routes::ClientOf(const HttpRequest& request) {
  return {request.caller.empty() ? request.address : request.caller, request.weight};
}

std::shared_ptr<Request> Routes::MakeRequest(GenerateRequest generate,
                                             const PendingBody& pending) const {
  const HttpRequest& request = pending.request;
  const Request::Origin origin{request.request_id,
                               request.caller,
                               pending.client,
                               generate.model,
                               pending.arrival_s,
                               pending.now_unix,
                               context_.dispatcher->options().timelines > 0,
                               request.trace};
  return std::make_shared<Request>(std::move(generate), origin, context_.api.tokenizer,
                                   pending.exchange, context_.jobs);
}

void Routes::NameIgnored(const IgnoredFields& ignored, HttpExchange* exchange) {
  if (ignored.empty()) return;
  exchange->AddHeader("X-Coppice-Ignored", ignored.Text());
  context_.metrics->FieldsIgnored(ignored);
}

void Routes::Finish(PendingBody* pending, bool admitted) {
  const std::shared_ptr<HttpExchange>& exchange = pending->exchange;
  if (const ApiError* error = std::get_if<ApiError>(&pending->result))
    return Refuse(*pending, *error);
  if (TokenAnswer* answer = std::get_if<TokenAnswer>(&pending->result)) {
    NameIgnored(answer->ignored, exchange.get());
    return exchange->Reply(JsonReply(std::move(answer->json)));
  }
  GenerateRequest& generate = std::get<GenerateRequest>(pending->result);
  NameIgnored(generate.ignored, exchange.get());
  const bool stream = generate.stream;
  const std::shared_ptr<Request> started = MakeRequest(std::move(generate), *pending);
  exchange->OnDisconnect(
      [dispatcher = context_.dispatcher, weak = std::weak_ptr<Request>(started)] {
        if (const std::shared_ptr<Request> alive = weak.lock()) dispatcher->Disconnected(alive);
      });
  context_.dispatcher->Submit(started, admitted);
  if (stream && !started->ended()) exchange->ExpectStream();
}

int Routes::LenOf(const std::vector<const Node*>& replicas) const {
  if (replicas.empty()) return context_.max_model_len;
  const int of_model = replicas.front()->registration.model().max_positions();
  return context_.max_model_len > 0 ? std::min(of_model, context_.max_model_len) : of_model;
}

int Routes::ModelVocab() const {
  for (const auto& replicas : {context_.registry->ReadyReplicas(), context_.registry->Replicas()}) {
    if (!replicas.empty()) return replicas.front()->registration.model().vocab_size();
  }
  return 0;
}

// Includes replicas that are not ready, because the value is only shown.
int Routes::ShownLen() const { return LenOf(context_.registry->Replicas()); }

ModelCard Routes::Card(const std::string& name) const {
  return {name,
          context_.started_unix,
          ShownLen(),
          context_.api.chat != nullptr,
          ServesFormats(context_.api),
          context_.api.sampling_defaults,
          CataloguesJson(context_.api.catalogues)};
}

HttpReply Routes::Reload() const {
  const std::vector<std::string> errors = context_.reload();
  if (!errors.empty()) {
    return ErrorReply(
        {500, "reload_failed",
         absl::StrCat("what was read before stays in use: ", absl::StrJoin(errors, "; "))});
  }
  nlohmann::ordered_json json;
  json["catalogues"] = CataloguesJson(context_.api.catalogues);
  return JsonReply(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

HttpReply Routes::Models() const {
  return JsonReply(ModelListJson(Card(""), context_.api.model_names, context_.api.limits));
}

HttpReply Routes::Model(const std::string& id) const {
  if (auto error = CheckModelName(id, context_.api.model_names)) return ErrorReply(*error);
  return JsonReply(ModelJson(Card(id), context_.api.limits));
}

HttpReply Routes::Ready() const {
  if (context_.dispatcher->draining()) {
    return ErrorReply(
        {503, "draining",
         absl::StrCat("the server is draining, requests left: ", context_.dispatcher->unanswered()),
         "", 5});
  }
  if (!context_.registry->ReadyReplicas().empty()) return JsonReply("{\"status\":\"ready\"}");
  std::string lost;
  for (const Node* node : context_.registry->Replicas()) {
    const std::string why = node->draining ? "drains" : node->why_lost;
    if (why.empty()) continue;
    absl::StrAppend(&lost, lost.empty() ? "no replica is ready: " : "; ", node->id, " ", why);
  }
  return ErrorReply({503, "no_replica", lost.empty() ? "no replica has joined yet" : lost, "", 1});
}

HttpReply Routes::Cluster() const {
  return JsonReply(ClusterJson(*context_.registry, *context_.dispatcher,
                               context_.operations->Drains(), context_.clock->NowSeconds()));
}

void Routes::Observe(const HttpRequest& request, int status, double seconds) {
  const Endpoint* endpoint = FindEndpoint(request.path);
  context_.metrics->Http(endpoint == nullptr ? "other" : endpoint->handler, request.method, status,
                         seconds);
}

ErrorForm Routes::FormOfErrors(const std::string& path) const {
  const Endpoint* endpoint = FindEndpoint(path);
  return endpoint == nullptr ? ErrorForm::kOpenAi : ErrorFormOf(endpoint->id);
}

void Routes::SetConnections(int open) { context_.metrics->SetConnections(open); }

}  // namespace coppice::coordinator
