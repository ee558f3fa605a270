// The endpoints of the API: one row for each, from which routes, access, the labels of the metrics,
// /openapi.json and the table of docs/api.md follow. Read-only after start.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api/answer_form.h"
#include "coordinator/http/api_keys.h"

namespace coppice::coordinator {

enum class EndpointId {
  kCompletions,
  kChat,
  kResponses,
  kMessages,
  kCountTokens,
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kModels,
  kModel,
  kHealth,
  kReady,
  kVersion,
  kMetrics,
  kOpenApi,
  kCluster,
  kDrain,
  kUndrain,
  kReload,
  kCancel,
  kTimeline,
  kTrace,
  kPage,
  kDocs,
  kAsk,
  kIcon,
  kWebFile,
};

struct Endpoint {
  EndpointId id;
  const char* method;   // "POST"
  const char* path;     // "/v1/models/{id}": what stands for {id} may have slashes
  const char* handler;  // label of the HTTP metrics
  Access access;
  const char* summary;  // a sentence

  bool takes_body() const { return method[0] == 'P'; }  // POST
  bool gets() const { return method[0] == 'G'; }        // GET, and thus HEAD
  // Of the pages for people (coordinator/web), which --web=false switches off.
  bool web() const {
    return id == EndpointId::kPage || id == EndpointId::kDocs || id == EndpointId::kAsk ||
           id == EndpointId::kIcon || id == EndpointId::kWebFile;
  }
};

absl::Span<const Endpoint> Endpoints();
// The form of what the endpoint generates; nullopt: it generates nothing.
std::optional<AnswerForm> FormOf(EndpointId id);
ErrorForm ErrorFormOf(EndpointId id);
// The path of the endpoint that answers in this form.
const char* RouteOf(AnswerForm form);
// The value of Allow: what the endpoint serves. nullptr: what any endpoint does.
std::string AllowedMethods(const Endpoint* endpoint);
// The endpoint of a path, without its query. nullptr: there is none.
const Endpoint* FindEndpoint(absl::string_view path);
// Why a path is no endpoint: the end of a message, with the endpoint that it resembles.
std::string NoEndpointText(absl::string_view path);
// What a path has in the place of {...}, without its escapes.
std::string PathArgument(const Endpoint& endpoint, absl::string_view path);

}  // namespace coppice::coordinator
