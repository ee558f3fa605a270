#include "coordinator/request/pending_body.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "coordinator/api/token_endpoints.h"

namespace coppice::coordinator {
namespace {

template <typename Good>
void Take(std::variant<Good, ApiError> read, PendingBody* reading) {
  if (ApiError* error = std::get_if<ApiError>(&read)) {
    reading->result = std::move(*error);
  } else {
    reading->result = std::get<Good>(std::move(read));
  }
}

}  // namespace

void Read(PendingBody* reading) {
  const HttpRequest& request = reading->request;
  const ApiContext& api = reading->api;
  try {
    switch (reading->endpoint) {
      case EndpointId::kCompletions:
        return Take(ParseCompletion(request.body, request.timeout_header, api), reading);
      case EndpointId::kChat:
        return Take(
            ParseChatCompletion(request.body, request.timeout_header, api, reading->now_unix),
            reading);
      case EndpointId::kTokenize:
        return Take(Tokenize(request.body, api, reading->shown_model_len, reading->now_unix),
                    reading);
      default:
        return Take(Detokenize(request.body, api), reading);
    }
  } catch (const std::exception& error) {  // no memory
    spdlog::error("request id={}: {}", request.request_id, error.what());
  }
}

}  // namespace coppice::coordinator
