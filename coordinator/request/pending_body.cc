#include "coordinator/request/pending_body.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/translation.h"
#include "coordinator/http/gzip.h"
#include "coordinator/web/ask_form.h"

namespace coppice::coordinator {
namespace {

template <typename Good>
void Take(std::variant<Good, ApiError> read, PendingBody* pending) {
  if (ApiError* error = std::get_if<ApiError>(&read)) {
    pending->result = std::move(*error);
  } else {
    pending->result = std::get<Good>(std::move(read));
  }
}

}  // namespace

std::optional<ApiError> DecodeBody(size_t max_body_bytes, HttpRequest* request) {
  if (!IsGzipCoding(request->content_encoding).value_or(false)) return std::nullopt;
  absl::StatusOr<std::string> body = Gunzip(request->body, max_body_bytes);
  if (absl::IsResourceExhausted(body.status())) {
    return ApiError{
        413, "body_too_large",
        absl::StrCat("the body exceeds ", max_body_bytes, " bytes: ", body.status().message())};
  }
  if (!body.ok()) {
    return ApiError{400, "invalid_body",
                    absl::StrCat("the body is not a gzip file: ", body.status().message())};
  }
  request->body = *std::move(body);
  request->content_encoding.clear();
  return std::nullopt;
}

void Read(PendingBody* pending) {
  const HttpRequest& request = pending->request;
  const ApiContext& api = pending->api;
  try {
    if (std::optional<ApiError> error = DecodeBody(pending->max_body_bytes, &pending->request)) {
      pending->result = *std::move(error);
      return;
    }
    switch (pending->endpoint) {
      case EndpointId::kCompletions:
        return Take(ParseCompletion(request.body, request.timeout_header, api), pending);
      case EndpointId::kChat:
        return Take(
            ParseChatCompletion(request.body, request.timeout_header, api, pending->now_unix),
            pending);
      case EndpointId::kResponses:
        return Take(ParseResponse(request.body, request.timeout_header, api, pending->now_unix),
                    pending);
      case EndpointId::kMessages:
        return Take(ParseMessage(request.body, request.timeout_header, api, pending->now_unix),
                    pending);
      case EndpointId::kAsk:
        return Take(ParseAskForm(request.body, request.timeout_header, api, pending->now_unix),
                    pending);
      case EndpointId::kCountTokens:
        return Take(CountTokens(request.body, api, pending->now_unix), pending);
      case EndpointId::kTokenize:
        return Take(Tokenize(request.body, api, pending->shown_model_len, pending->now_unix),
                    pending);
      default:
        return Take(Detokenize(request.body, api), pending);
    }
  } catch (const std::exception& error) {  // no memory left
    spdlog::error("request id={}: {}", request.request_id, error.what());
  }
}

}  // namespace coppice::coordinator
