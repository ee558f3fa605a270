#include "coordinator/request/pending_body.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

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

void Read(PendingBody* pending) {
  const HttpRequest& request = pending->request;
  const ApiContext& api = pending->api;
  try {
    switch (pending->endpoint) {
      case EndpointId::kCompletions:
        return Take(ParseCompletion(request.body, request.timeout_header, api), pending);
      case EndpointId::kChat:
        return Take(
            ParseChatCompletion(request.body, request.timeout_header, api, pending->now_unix),
            pending);
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
